"""Device rules of random numbers: the same bits as on the host for rng-bit-generator.

`rng` has its distribution only; each element is drawn from its own number, the operands and the
instruction's name.
"""

from __future__ import annotations

from math import prod
from zlib import crc32

from hlo2graph.hlo import DTYPES, Instruction, Shape
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.expect import written

U64 = DTYPES["u64"]
FIRST_STATE = 0x7012395  # of XLA's rng-get-and-update-state, before anything advanced it


def rng_bit_generator(element: Element, instr: Instruction, leaf: int, index: Index) -> Expr:
    """Return a word of the advanced state, or the random bits at `index`."""
    *state, bits = tuple(instr.shape.leaves())
    words = [element.operand(0, (str(k),)) for k in range(element.shape(0).dims[0])]
    threefry = instr.attrs.get("algorithm") == "rng_three_fry"
    if leaf < len(state):
        advanced = _advanced(words, bits, threefry)
        texts = [element.bind(U64, text) for text in advanced]
        return _pick(element, texts, index)
    wide = bits.dtype.bits == 64
    if threefry:
        count, lane = _threefry_count(element, bits, index)
        call = f"hlo::threefry{'_wide' if wide else ''}({words[0]}, {words[1]} + (hlo::u64){count}"
        word = call + (")" if wide else f", {lane})")
    else:
        high = words[2 if len(words) > 2 else 0]
        number = _linear(element, bits.dims, index)
        name = "philox_wide" if wide else "philox_word"
        word = f"hlo::{name}({words[0]}, {words[1]}, {high}, (hlo::u64){number})"
    return element.bind(bits.dtype, f"hlo::from_bits<hlo::{bits.dtype}>({word})")


def _advanced(words: list[Expr], bits: Shape, threefry: bool) -> list[str]:
    if threefry:
        counters = bits.elements if bits.dtype.bits == 64 else prod(split_dims(bits.dims)[1])
        return [words[0], f"{words[1]} + {counters}ull"]
    blocks = -(-bits.elements * (2 if bits.dtype.bits == 64 else 1) // 4)
    end = f"{words[1]} + {blocks}ull"
    high = words[2 if len(words) > 2 else 0]
    return [words[0], end, f"{high} + (hlo::u64)({end} < {words[1]})"][: len(words)]


def _pick(element: Element, texts: list[Expr], index: Index) -> Expr:
    chosen = texts[-1]
    for k in reversed(range(len(texts) - 1)):
        chosen = f"{index[0]} == {k} ? {texts[k]} : {chosen}"
    return element.bind(U64, chosen)


def split_dims(dims: tuple[int, ...]) -> tuple[int | None, tuple[int, ...]]:
    """Return which dimension the two words of a ThreeFry counter fill, and what is left of `dims`.

    The first even one; where all are odd the first of the longest, whose last word goes unused.
    """
    if not dims:
        return None, (1,)
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    split = even[0] if even else dims.index(max(dims))
    return split, tuple((n + 1) // 2 if d == split else n for d, n in enumerate(dims))


def _threefry_count(element: Element, bits: Shape, index: Index) -> tuple[Expr, Expr]:
    """Return the counter of the element at `index`, and which of its two words it takes."""
    if bits.dtype.bits == 64:
        return _linear(element, bits.dims, index), "0"
    split, half = split_dims(bits.dims)
    if split is None:
        return "0", "0"
    at = [element.integer(f"{i} / 2") if d == split else i for d, i in enumerate(index)]
    return _linear(element, half, tuple(at)), element.integer(f"{index[split]} % 2")


def _linear(element: Element, dims: tuple[int, ...], index: Index) -> Expr:
    """Return the row-major number of the element at `index`."""
    terms, stride = [], 1
    for i, n in zip(reversed(index), reversed(dims), strict=True):
        terms.append(i if stride == 1 else f"{i} * {stride}")
        stride *= n
    return element.integer(" + ".join(reversed(terms)) or "0")


def rng(element: Element, instr: Instruction, index: Index) -> Expr:
    """Draw one number from the distribution between, or around, the two operands."""
    dtype = written(instr).dtype
    first, second = element.operand(0), element.operand(1)
    number = _linear(element, written(instr).dims, index)
    kind = "normal" if instr.attrs["distribution"] == "rng_normal" else "uniform"
    seed = f"{crc32(instr.name.encode())}u, (hlo::u64){number}"
    return element.bind(dtype, f"hlo::rng_{kind}<hlo::{dtype}>({first}, {second}, {seed})")


def rng_state(element: Element, _: Instruction, index: Index) -> Expr:
    """Return the state that XLA begins with, before anything advanced it."""
    return element.bind(U64, f"{index[0]} == 0 ? {FIRST_STATE:#x}ull : 0ull")
