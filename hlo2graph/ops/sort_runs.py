"""`hlo2graph$sort_runs`: a step of a long sort, which passes write and blocks do.

Runs of `length` elements along a dimension (the last one may be shorter) are sorted as `to_apply`
says, each for itself. Each is known to consist of sorted runs of `sorted` elements: two of them, or
more, or elements that a window holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hlo2graph.hlo import AnyShape, Attribute, Computation, Instruction, Shape
from hlo2graph.hlo.attributes import Raw
from hlo2graph.ops.custom_target import json_config
from hlo2graph.ops.expect import host_arrays, in_total_order, require
from hlo2graph.ops.reduction import as_result
from hlo2graph.ops.sorting import SORT, sorted_arrays
from hlo2graph.ops.spec import Computations, Evaluator, HostValue

SORT_RUNS = "hlo2graph$sort_runs"
WIDEST = 4096  # elements of a window in shared memory
LONGEST_JOINED = 1 << 20  # of a run that is made of more than two
SHARED_BYTES = 40 * 1024
ORDER_BYTES = 2  # of an element's place in a window
FEWEST = 64
MOST_COUNTED, LONGEST_COUNTED = 8192, 4096  # elements that are counted, in all and of a window
SHORT_COUNTED = 1024  # elements of a window, up to which twice as many are counted in all
_NAMES = ("dimension", "length", "sorted")


@dataclass(frozen=True, slots=True)
class Runs:
    """What a step sorts."""

    dimension: int
    length: int
    sorted: int

    def attrs(self) -> dict[str, Attribute]:
        """Return the attributes of the call, all but `to_apply`."""
        config = ", ".join(f'"{name}": {getattr(self, name)}' for name in _NAMES)
        return {
            "custom_call_target": SORT_RUNS,
            "backend_config": Raw(f'{{"sort_runs": {{{config}}}}}'),
        }


def runs_of(instr: Instruction) -> Runs | None:
    """Return what a call says that it sorts; None where it does not say it."""
    config = json_config(instr, "sort_runs")
    held: Mapping[str, Any] = config or {}
    numbers = [held.get(name) for name in _NAMES]
    if not all(type(n) is int and 0 <= n < 2**62 for n in numbers):
        return None
    runs = Runs(*(int(n) for n in numbers if n is not None))
    doubles = runs.sorted >= 1 and runs.length == 2 * runs.sorted
    first = runs.sorted == 1 and 2 <= runs.length <= WIDEST
    several = runs.sorted > 1 and 2 * runs.sorted < runs.length <= LONGEST_JOINED
    whole = runs.sorted > 0 and runs.length % runs.sorted == 0
    power = runs.length & (runs.length - 1) == 0
    return runs if (doubles or first or several) and whole and power else None


def sorts_windows(instr: Instruction) -> bool:
    """Tell whether a call is a first step, which looks at each element once."""
    runs = runs_of(instr)
    return runs is not None and runs.sorted == 1


def window_size(length: int, bytes_each: int) -> int:
    """Return a window for rows of `length`: a power of two that fits into shared memory."""
    size = WIDEST
    while size > FEWEST and size * (bytes_each + ORDER_BYTES) > SHARED_BYTES:
        size //= 2
    return min(size, max(2, 1 << (length - 1).bit_length()))


def window_for(shape: AnyShape, length: int) -> int:
    """Return the window for rows of `length` of what a sort gives."""
    return window_size(length, sum(leaf.dtype.size for leaf in shape.leaves()))


def counts(windows: int, length: int) -> bool:
    """Tell whether windows are best sorted by counting, for each element, those before it.

    That is more work than any other way, but work of all multiprocessors, and no step of it waits.
    """
    most = 2 * MOST_COUNTED if length <= SHORT_COUNTED else MOST_COUNTED
    return length <= LONGEST_COUNTED and windows * length <= most


def too_wide(shape: AnyShape) -> bool:
    """Not even the smallest window of such arrays fits into shared memory."""
    each = sum(leaf.dtype.size for leaf in shape.leaves())
    return FEWEST * (each + ORDER_BYTES) > SHARED_BYTES


def orders_all(computations: Computations, name: str) -> bool:
    """Tell whether a comparator orders no floats by value, which leaves NaNs without a place."""
    comparator = computations[name]
    return not any(
        orders_by_value(comparator, instr) or any(True for _ in instr.called())
        for instr in comparator.instructions
    )


def orders_by_value(comparator: Computation, instr: Instruction) -> bool:
    """Tell whether an instruction of a comparator tells which of two floats is less, by value."""
    if instr.opcode != "compare" or instr.attrs.get("direction") in ("EQ", "NE"):
        return False
    shape = comparator[instr.operands[0]].shape
    assert isinstance(shape, Shape)
    return shape.dtype.is_float and not in_total_order(instr, shape.dtype)


def why_not_runs(instr: Instruction) -> str | None:
    """Return why a call cannot run, or None."""
    runs = runs_of(instr)
    if runs is None:
        return f"its backend_config must say {', '.join(_NAMES)}: several runs in one, or windows"
    if too_wide(instr.shape) or (
        runs.sorted == 1 and runs.length > window_for(instr.shape, runs.length)
    ):
        return "no window of its operands fits into shared memory"
    return None


def infer_runs(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    """Return the result's shape, that of a sort."""
    runs = runs_of(instr)
    if runs is None:
        return instr.shape
    require(instr, len(operands) > 0, "takes an array or more")
    attrs = {"dimensions": (runs.dimension,), "to_apply": instr.attrs.get("to_apply")}
    named = {name: held for name, held in attrs.items() if held is not None}
    return SORT.infer(replace(instr, attrs=named), operands, computations)


def sort_runs(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    """Sort each run of the operands."""
    runs, arrays = runs_of(instr), host_arrays(operands)
    assert runs is not None
    along, name = runs.dimension, str(instr.attrs["to_apply"])
    results = [a.copy() for a in arrays]
    for start in range(0, arrays[0].shape[along], runs.length):
        place = (*[slice(None)] * along, slice(start, start + runs.length))
        found = sorted_arrays([a[place] for a in arrays], along, evaluate, name)
        for result, part in zip(results, found, strict=True):
            result[place] = part
    return as_result(instr, results)
