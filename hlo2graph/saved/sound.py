"""Whether what a file says hangs together: what a plan names is there, and slices lie inside.

Files that are written here do; one that was made by hand must lead nobody astray. What kernels
compute is not looked at: who runs them from their HLO verifies that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import assert_never

from hlo2graph.hlo import Computation, Shape
from hlo2graph.program.plan import Allocation, Bound, Plan
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Sequence,
    Slice,
    Thunk,
    While,
)
from hlo2graph.program.uses import placed
from hlo2graph.saved.sound_hlo import check_computations

PATTERNS = (1, 2, 4, 8, 16)  # bytes of one element


def check_sound(plan: Plan) -> None:
    """Check a plan. Raises ValueError, which names what does not fit."""
    places = _Places(plan.allocations)
    for bound in (*plan.inputs, *plan.outputs):
        places.check((bound.slice,), bound.name)
        _require(_is_array(bound), f"the bytes of {bound.name}")
    check_computations(plan.computations)
    leaves = {name: _leaves(c) for name, c in plan.computations.items()}
    for _, sequence in placed(plan.body):
        _check_sequence(sequence, places, leaves)
    for held, bounds in ((plan.body.params, plan.inputs), (plan.body.results, plan.outputs)):
        _require(held == tuple(b.slice for b in bounds), "the parameters or results")


class _Places:
    """The allocations that slices lie in."""

    def __init__(self, allocations: tuple[Allocation, ...]) -> None:
        self._sizes = [allocation.size for allocation in allocations]
        for number, allocation in enumerate(allocations):
            literal = allocation.literal
            held = allocation.size if literal is None else literal.shape.size
            _require(0 <= allocation.size == held, f"the size of allocation {number}")

    def check(self, slices: Iterable[Slice], where: str) -> None:
        """Check that slices lie in allocations that there are."""
        sizes = self._sizes
        for part in slices:
            is_there = 0 <= part.allocation < len(sizes)
            inside = is_there and 0 <= part.offset <= part.end <= sizes[part.allocation]
            _require(inside and part.size >= 0, f"a slice of {where}")


Leaves = Mapping[str, tuple[list[int], list[int]]]
"""By computation, the bytes of what it reads and of what it writes."""


def _leaves(computation: Computation) -> tuple[list[int], list[int]]:
    given = (leaf for p in computation.parameters for leaf in p.shape.leaves())
    return [leaf.size for leaf in given], [leaf.size for leaf in computation.result.shape.leaves()]


def _check_sequence(sequence: Sequence[Slice], places: _Places, leaves: Leaves) -> None:
    for thunk in sequence.thunks:
        places.check(_slices(thunk), thunk.name)
        _require(_fits(thunk, leaves), f"what {thunk.name} reads or writes")
    places.check((*sequence.params, *sequence.results), "a sequence")
    count = len(sequence.thunks)
    for edge in sequence.edges:
        _require(0 <= edge.src < edge.dst < count, "an edge")


def _slices(thunk: Thunk[Slice]) -> Iterable[Slice]:
    """Return the slices of a thunk, those of nested sequences left out."""
    match thunk:
        case Kernel() | Collective():
            return chain(thunk.reads, thunk.writes)
        case Library():
            return chain(thunk.reads, thunk.writes, thunk.workspace)
        case Copy():
            return thunk.source, thunk.target
        case Fill():
            return (thunk.target,)
        case While():
            return chain(thunk.inits, thunk.results)
        case Conditional():
            return thunk.selector, *thunk.results
        case _:
            assert_never(thunk)


def _fits(thunk: Thunk[Slice], leaves: Leaves) -> bool:
    """Tell whether a thunk's slices are as many and as large as what it runs takes."""
    match thunk:
        case Kernel() | Collective() | Library():
            taken, given = leaves[thunk.computation]
            return _sizes(thunk.reads) == taken and _sizes(thunk.writes) == given
        case Copy():
            return thunk.source.size == thunk.target.size
        case Fill():
            size = len(thunk.pattern)
            return size in PATTERNS and not thunk.target.size % size
        case While():
            state = (thunk.results, thunk.body.params, thunk.body.results, thunk.condition.params)
            alike = all(_sizes(part) == _sizes(thunk.inits) for part in state)
            return alike and _sizes(thunk.condition.results) == [1]
        case Conditional():
            alike = all(_sizes(b.results) == _sizes(thunk.results) for b in thunk.branches)
            return alike and bool(thunk.branches) and thunk.selector.size in (1, 4)
        case _:
            assert_never(thunk)


def _sizes(slices: Iterable[Slice]) -> list[int]:
    return [part.size for part in slices]


def _is_array(bound: Bound) -> bool:
    shape: Shape = bound.shape
    order = sorted(shape.minor_to_major) == list(range(shape.rank))
    return order and all(n >= 0 for n in shape.dims) and shape.size == bound.slice.size


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise ValueError(f"{what} cannot be so")
