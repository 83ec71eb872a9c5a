"""rng-bit-generator, rng and rng-get-and-update-state.

Philox 4x32-10 and ThreeFry 2x32-20 are those of Salmon et al., "Parallel random numbers: as easy as
1, 2, 3" (SC 2011). How their words become the result's elements follows XLA, bit for bit. `rng` has
its distribution only; it is a function of its name and operands, so that every run is equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeAlias
from zlib import crc32

import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, DType, Instruction, Kind, Shape, TupleShape
from hlo2graph.ops import device_random as device
from hlo2graph.ops.device import ByLeaf
from hlo2graph.ops.device_random import FIRST_STATE, split_dims
from hlo2graph.ops.expect import as_arrays, host_arrays, integer, refuse, require, tuple_of
from hlo2graph.ops.reduction import as_result, result_types
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec

Words: TypeAlias = list[Array]  # of uint32

U64 = DTYPES["u64"]
LOW_WORD = np.uint64(0xFFFFFFFF)
THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREEFRY_PARITY = np.uint32(0x1BD11BDA)
PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
ALGORITHMS = {"rng_default": 3, "rng_philox": 3, "rng_three_fry": 2}  # and their states' lengths


def threefry(counter: Words, key: Words) -> Words:
    """Return ThreeFry 2x32 with 20 rounds of two counter words."""
    keys = [key[0], key[1], key[0] ^ key[1] ^ THREEFRY_PARITY]
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for distance in THREEFRY_ROTATIONS[group % 2]:
            x = x + y
            y = x ^ (y << np.uint32(distance) | y >> np.uint32(32 - distance))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + np.uint32(group + 1)
    return [x, y]


def philox(counter: Words, key: Words) -> Words:
    """Return Philox 4x32 with 10 rounds of four counter words."""
    a, b, c, d = counter
    for step in range(10):
        keys = [k + np.uint32(step * w & 0xFFFFFFFF) for k, w in zip(key, PHILOX_WEYL, strict=True)]
        high0, low0 = _multiply(a, PHILOX_MULTIPLIERS[0])
        high1, low1 = _multiply(c, PHILOX_MULTIPLIERS[1])
        a, b, c, d = high1 ^ b ^ keys[0], low1, high0 ^ d ^ keys[1], low0
    return [a, b, c, d]


def _multiply(word: Array, factor: np.uint64) -> tuple[Array, Array]:
    high, low = _halves(word.astype(np.uint64) * factor)[::-1]
    return high, low


def _halves(wide: Array) -> Words:
    """Return the low and the high words of uint64s."""
    return [(wide & LOW_WORD).astype(np.uint32), (wide >> np.uint64(32)).astype(np.uint32)]


def _joined(low: Array, high: Array) -> Array:
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def _threefry_bits(state: Array, dims: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    """Return the new state and the bits, uint64 where `wide`, else uint32."""
    key = _halves(state[:1])
    split, half = (None, dims) if wide else split_dims(dims)
    count = np.arange(prod(half), dtype=np.uint64) + state[1]
    low, high = threefry(_halves(count), key)
    after = np.array([state[0], state[1] + np.uint64(prod(half))], np.uint64)
    if split is None:
        return after, (_joined(low, high) if wide else low).reshape(dims)
    pairs = np.stack([low.reshape(half), high.reshape(half)], axis=split + 1)
    even = [*half]
    even[split] *= 2
    bits = pairs.reshape(even)
    return after, bits[tuple(slice(n) for n in dims)]


def _philox_bits(state: Array, dims: tuple[int, ...], wide: bool) -> tuple[Array, Array]:
    """Return the new state and the bits, uint64 where `wide`, else uint32."""
    low, high = state[1], state[2 if len(state) > 2 else 0]
    elements = prod(dims)
    blocks = -(-elements * (2 if wide else 1) // 4)
    lows = low + np.arange(blocks, dtype=np.uint64)
    highs = np.where(lows < low, high + np.uint64(1), high)
    words = philox([*_halves(lows), *_halves(highs)], _halves(state[:1]))
    if wide:
        stream = np.stack([_joined(*words[:2]), _joined(*words[2:])], axis=-1)
    else:
        stream = np.stack(words, axis=-1)
    end = low + np.uint64(blocks)
    after = [state[0], end, high + np.uint64(end < low)]
    return np.array(after[: len(state)], np.uint64), stream.reshape(-1)[:elements].reshape(dims)


def random_bits(state: Array, result: Shape, algorithm: str) -> tuple[Array, Array]:
    """Return the new state and `result`'s random bits; narrow types take a word's low bits."""
    bits = _threefry_bits if algorithm == "rng_three_fry" else _philox_bits
    with np.errstate(over="ignore"):
        after, words = bits(state, result.dims, result.dtype.bits == 64)
    size = result.dtype.size
    mask = words.dtype.type((1 << result.dtype.bits) - 1)
    if result.dtype.bits < 8:
        return after, (words & mask).astype(np.uint8).astype(result.dtype.numpy)
    return after, words.astype(f"u{size}").view(result.dtype.numpy)


def _algorithm(instr: Instruction) -> str:
    held = instr.attrs.get("algorithm", "rng_default")
    if held not in ALGORITHMS:
        refuse(instr, f"algorithm must be one of {', '.join(ALGORITHMS)}, got {held}")
    return str(held)


def _infer_bits(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    (state,) = as_arrays(instr, operands)
    written = instr.shape
    if isinstance(written, TupleShape):
        written = tuple_of(instr, written, least=1).parts[-1]
    if not isinstance(written, Shape) or written.dtype.kind in (Kind.COMPLEX, Kind.PRED):
        refuse(instr, f"the bits must be an array of integers or floats, got {written}")
    algorithm = _algorithm(instr)
    if not isinstance(instr.shape, TupleShape):  # the form without the new state
        require(instr, _is_state(state, algorithm), _wanted(algorithm, state))
        return Shape(written.dtype, written.dims)
    return TupleShape((Shape(state.dtype, state.dims), Shape(written.dtype, written.dims)))


def _bits_why_not(instr: Instruction) -> str | None:
    *state, bits = result_types(instr)
    algorithm = str(instr.attrs.get("algorithm", "rng_default"))
    if state and not _is_state(state[0], algorithm):
        return _wanted(algorithm, state[0])
    return None if bits.dtype.bits in (2, 4, 8, 16, 32, 64) else f"no random bits for {bits}"


def _is_state(shape: Shape, algorithm: str) -> bool:
    lengths = (2,) if algorithm == "rng_three_fry" else (2, 3)
    return shape.dtype is U64 and shape.dims in [(n,) for n in lengths]


def _wanted(algorithm: str, found: Shape) -> str:
    return f"{algorithm} needs a state of u64[{ALGORITHMS[algorithm]}], got {found}"


def _bits(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    (state,) = host_arrays(operands)
    found = random_bits(state, result_types(instr)[-1], _algorithm(instr))
    return found if isinstance(instr.shape, TupleShape) else found[1]


def _infer_rng(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    arrays = as_arrays(instr, operands)
    for number, array in enumerate(arrays[:2]):  # XLA lets more follow, and ignores them
        require(instr, not array.dims, f"operand {number} must be a scalar, got {array}")
    first, second = arrays[:2]
    require(
        instr,
        first.dtype is second.dtype,
        f"operands must have one element type, got {first} and {second}",
    )
    distribution = instr.attrs.get("distribution")
    require(
        instr,
        distribution in ("rng_uniform", "rng_normal"),
        f"distribution must be rng_uniform or rng_normal, got {distribution}",
    )
    allowed = first.dtype.is_float or (
        distribution == "rng_uniform" and (first.dtype.is_integer or first.dtype.kind is Kind.PRED)
    )
    require(instr, allowed, f"{distribution} does not take {first.dtype}")
    if not isinstance(instr.shape, Shape):
        refuse(instr, f"the result must be an array, got {instr.shape}")
    return Shape(first.dtype, instr.shape.dims)


def _rng(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    first, second = host_arrays(operands)[:2]
    assert isinstance(instr.shape, Shape)
    dtype, dims = instr.shape.dtype, instr.shape.dims
    seed = [crc32(part) for part in (instr.name.encode(), first.tobytes(), second.tobytes())]
    draw = np.random.default_rng(seed)
    if instr.attrs["distribution"] == "rng_normal":
        wide = first.astype(np.float64) + second.astype(np.float64) * draw.standard_normal(dims)
        return as_result(instr, [wide.astype(dtype.numpy)])
    if dtype.is_float:
        return as_result(instr, [_uniform(draw, first, second, dtype, dims)])
    low, high = int(first), int(second)
    drawn = draw.integers(
        low, max(high, low + 1), dims, np.uint64 if dtype.name == "u64" else np.int64
    )
    return as_result(instr, [drawn.astype(dtype.numpy)])


def _uniform(
    draw: np.random.Generator, low: Array, high: Array, dtype: DType, dims: tuple[int, ...]
) -> Array:
    """Return values in [low, high): rounding must not reach the upper end."""
    wide = low.astype(np.float64) + (high - low).astype(np.float64) * draw.random(dims)
    values = wide.astype(dtype.numpy)
    return np.where((values >= high) & (low < high), low, values)


def _infer_state(instr: Instruction, _: Sequence[AnyShape], __: Computations) -> AnyShape:
    integer(instr, "delta")
    return Shape(U64, (2,))


def _state(_: Instruction, __: Sequence[HostValue], ___: Evaluator) -> HostValue:
    return np.array([FIRST_STATE, 0], np.uint64)


RANDOM = (
    OpSpec(
        "rng-bit-generator",
        1,
        _infer_bits,
        _bits,
        frozenset({"algorithm"}),
        required=frozenset({"algorithm"}),
        why_not=_bits_why_not,
        device=ByLeaf(device.rng_bit_generator),
    ),
    OpSpec(
        "rng",
        (2, None),
        _infer_rng,
        _rng,
        frozenset({"distribution"}),
        required=frozenset({"distribution"}),
        device=device.rng,
    ),
    OpSpec(
        "rng-get-and-update-state",
        0,
        _infer_state,
        _state,
        frozenset({"delta"}),
        required=frozenset({"delta"}),
        effect=True,
        device=device.rng_state,
    ),
)
