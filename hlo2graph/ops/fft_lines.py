"""Which transforms a block does in its shared memory, and by which passes."""

from __future__ import annotations

from hlo2graph.hlo import DType, Instruction
from hlo2graph.ops.expect import integers

LONGEST_BYTES = 64 << 10  # of a line that a block transforms
SHORTEST = 64  # below which a length that has no passes is computed as a plain sum
_MOST_TWOS = 4  # in one radix
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)


def radices(length: int) -> tuple[int, ...] | None:
    """Return the radices of the passes that transform `length` numbers; None where one is large."""
    found: list[int] = []
    twos = (length & -length).bit_length() - 1
    rest = length >> twos
    for prime in _PRIMES:
        while rest % prime == 0:
            found.insert(0, prime)
            rest //= prime
    if rest != 1 or length < 2:
        return None
    passes = -(-twos // _MOST_TWOS)
    found += [2 ** (twos // passes + (k < twos % passes)) for k in range(passes)]
    return tuple(found)


def points(instr: Instruction) -> int:
    """Return how many complex numbers a line of the last dimension is transformed as."""
    length = integers(instr, "fft_length")[-1]
    is_real = instr.attrs["fft_type"] in ("RFFT", "IRFFT")
    return length // 2 if is_real and length % 2 == 0 and length > 2 else length


def fits_block(instr: Instruction, dtype: DType) -> bool:
    """Tell whether a block can transform a line of an operand of `dtype`."""
    return fits(points(instr), 16 if dtype.name in ("f64", "c128") else 8)


def fits(length: int, element_bytes: int) -> bool:
    """Tell whether a block can transform a line of `length` complex numbers."""
    return length * element_bytes <= LONGEST_BYTES and radices(length) is not None


def turns_of(length: int) -> int:
    """Return how many turns a block's tables have (Turns in include/fft.cuh)."""
    return length + 1 if length <= 256 else 64 + -(-length // 64)
