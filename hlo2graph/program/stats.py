"""A plan in numbers: how wide and how deep its graph is, how many bytes it needs.

Counts are of the outermost sequence: a loop or conditional is one thunk, what is inside is not
counted. `in all` it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hlo2graph.program.live_bytes import peak_bytes, written_bytes
from hlo2graph.program.plan import Allocation, AllocationKind, ArenaSize, Plan
from hlo2graph.program.thunks import Hazard, Sequence, Slice
from hlo2graph.program.uses import placed

ADDED = (Hazard.REUSE, Hazard.INPLACE)


@dataclass(frozen=True, slots=True)
class PlanStats:
    """What a report says of a plan.

    width: most thunks at one level; a thunk's level is how many thunks the longest path to it has.
    widest: the same of whatever sequence it is most of, those in loops and branches too.
    critical_path: thunks on the longest path.
    nodes_in_all, edges_in_all: those of loops and branches too.
    added: edges in all that are there only to save memory: reuse and inplace.
    arena_bytes, lower_bound_bytes, sum_bytes: see ArenaSize.
    """

    nodes: int
    edges: int
    by_hazard: Mapping[Hazard, int]  # those that occur
    width: int
    widest: int
    critical_path: int
    arena_bytes: int
    lower_bound_bytes: int
    sum_bytes: int
    nodes_in_all: int
    edges_in_all: int
    added: int


def plan_stats(plan: Plan) -> PlanStats:
    """Return the plan's figures, in time linear in thunks and edges."""
    sequence = plan.body
    found = levels(sequence)
    counts = Counter(edge.hazard for edge in sequence.edges)
    every = [held for _, held in placed(sequence)]
    widths = [max(Counter(levels(held)).values(), default=0) for held in every]
    return PlanStats(
        nodes=len(sequence.thunks),
        edges=len(sequence.edges),
        by_hazard={hazard: counts[hazard] for hazard in Hazard if hazard in counts},
        width=widths[0],
        widest=max(widths),
        critical_path=max(found, default=0),
        arena_bytes=plan.arena.size,
        lower_bound_bytes=plan.arena.lower_bound,
        sum_bytes=plan.arena.sum,
        nodes_in_all=sum(len(held.thunks) for held in every),
        edges_in_all=sum(len(held.edges) for held in every),
        added=sum(edge.hazard in ADDED for held in every for edge in held.edges),
    )


def levels(sequence: Sequence[Slice]) -> list[int]:
    """Return for each thunk the length, in thunks, of the longest path that ends with it."""
    found = [1] * len(sequence.thunks)
    for edge in sorted(sequence.edges, key=lambda edge: edge.src):
        found[edge.dst] = max(found[edge.dst], found[edge.src] + 1)
    return found


def critical_path(sequence: Sequence[Slice]) -> tuple[int, ...]:
    """Return the positions of a longest path's thunks, in order; the earliest ones of several."""
    if not sequence.thunks:
        return ()
    found = levels(sequence)
    before: dict[int, int] = {}
    for edge in sequence.edges:
        if found[edge.src] + 1 == found[edge.dst]:
            before[edge.dst] = min(edge.src, before.get(edge.dst, edge.src))
    at = found.index(max(found))
    path = [at]
    while at in before:
        at = before[at]
        path.append(at)
    return tuple(reversed(path))


def measure_arena(allocations: Iterable[Allocation], body: Sequence[Slice]) -> ArenaSize:
    """Return the sizes of temporaries for a plan whose buffers somebody else has placed.

    The lower bound is the most bytes that hold something still to be read, in program order, not
    rounded up; the sum has each slice that a thunk writes as a buffer of its own.
    """
    temps = {
        index: allocation.size
        for index, allocation in enumerate(allocations)
        if allocation.kind is AllocationKind.TEMP
    }
    return ArenaSize(sum(temps.values()), peak_bytes(body, temps), written_bytes(body, temps))
