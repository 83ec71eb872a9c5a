"""How long the steps of a sort, a factor and their kin take that wait for each other.

Of each the way with the fewest is counted, its data in registers and shared memory, by one block
that has room for it: nobody's kernel, and none that exists need be as fast.

- sort: the least of three. A network, whose steps are within a thread of 8 elements (free), a warp
  or the block. Passes by 8 bits of the key, each a rank within a warp (8 steps), a scan of the
  digits, and a move. Comparing each element with every other, by the whole device.
- sorting by a digit: one such pass.
- merging sorted runs: each element is looked for in the others; counts are added.
- the largest k: the passes without the move; or runs of k that are sorted, then merged by halves.
- a factor, a substitution: a step a column, or row, and a barrier for each block of 32.
- FFT: stages of radix two, and a barrier between each four of them.
- a scan by windows: additions over twice as many each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, log2, prod
from types import MappingProxyType

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.custom_lapack import Call, lapack_call, routine_of
from hlo2graph.ops.custom_target import target_of
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.expect import integer, integers
from hlo2graph.ops.sort_digits import SORT_DIGITS
from hlo2graph.ops.sort_runs import runs_of
from hlo2graph.ops.top_places import TOP_PLACES
from hlo2graph.program.device_figures import Measured

_DIGIT, _BLOCK = 8, 32  # bits of a pass; columns between barriers
_THREAD, _WARP = 3, 8  # powers of two: elements that a thread holds, and a warp


def chain_seconds(instr: Instruction, computation: Computation, measured: Measured) -> float:
    """Return the seconds of the steps of `instr`, 0 where it is none of these."""
    write = _CHAINS.get(instr.opcode)
    if write is None:
        return 0.0
    operand = next(computation[instr.operands[0]].shape.leaves())
    return write(instr, operand, measured) if operand.elements else 0.0


def _called(instr: Instruction, operand: Shape, measured: Measured) -> float:
    if runs := runs_of(instr):
        if runs.sorted == 1:
            return _sort(operand, runs.length, measured)
        looks = log2(runs.sorted) + 1
        return looks * measured.steps.look + _folded(runs.length // runs.sorted, measured)
    if target_of(instr) == SORT_DIGITS:
        return _digits(measured) + _DIGIT * measured.steps.exchange
    if target_of(instr) == TOP_PLACES:
        return _top(operand, next(instr.shape.leaves()).dims[-1], measured)
    call = lapack_call(instr) if routine_of(target_of(instr)) else None
    if isinstance(call, Call) and call.name == "potrf":
        return _columns(operand.dims[-1], measured.steps.column, measured)
    return 0.0


def _sort(operand: Shape, length: int, measured: Measured) -> float:
    steps = measured.steps
    size, network = ceil(log2(max(length, 1))), 0.0
    for merged in range(1, size + 1):
        within = min(merged, _WARP) - min(merged, _THREAD)
        network += within * steps.exchange + max(0, merged - _WARP) * steps.barrier
    passes = ceil(operand.dtype.bits / _DIGIT)
    radix = passes * (_digits(measured) + _DIGIT * steps.exchange + 2 * steps.barrier)
    compared = 2 * operand.elements * length / (measured.vector_flops / 2)
    return min(network, radix, compared + steps.barrier)


def _top(operand: Shape, kept: int, measured: Measured) -> float:
    steps, depth = measured.steps, ceil(log2(max(kept, 1)))
    runs = ceil(log2(max(1, operand.dims[-1] // max(kept, 1))))
    merged = depth * (depth + 1) / 2 + runs * (depth + 1)
    return min(merged * steps.exchange, ceil(operand.dtype.bits / _DIGIT) * _digits(measured))


def _digits(measured: Measured) -> float:
    """Return what it takes to count digits and to add up the counts of those before each."""
    return _DIGIT * measured.steps.fold + 2 * measured.steps.barrier


def _columns(count: int, each: float, measured: Measured) -> float:
    return count * each + max(0, ceil(count / _BLOCK) - 1) * measured.steps.barrier


def _fft(length: int, measured: Measured) -> float:
    stages = ceil(log2(max(length, 1)))
    barriers = max(0, ceil(stages / 4) - 1)
    return stages * measured.steps.butterfly + barriers * measured.steps.barrier


def _folded(count: int, measured: Measured) -> float:
    steps = measured.steps
    return ceil(log2(max(count, 1))) * steps.fold + (count > _BLOCK) * steps.barrier


_CHAINS: Mapping[str, Callable[[Instruction, Shape, Measured], float]] = MappingProxyType(
    {
        "sort": lambda i, x, m: _sort(x, x.dims[integers(i, "dimensions")[0]], m),
        "topk": lambda i, x, m: _top(x, integer(i, "k"), m),
        "cholesky": lambda _, x, m: _columns(x.dims[-1], m.steps.column, m),
        "triangular-solve": lambda _, x, m: _columns(x.dims[-1], m.steps.row, m),
        "fft": lambda i, _, m: _fft(prod(integers(i, "fft_length")), m),
        "reduce-window": lambda i, _, m: _folded(
            max((w.size for w in window_dims(i)), default=1), m
        ),
        "custom-call": _called,
    }
)
