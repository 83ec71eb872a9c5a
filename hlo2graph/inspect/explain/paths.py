"""Paths through the edges of one sequence, and what is ordered with what."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hlo2graph.program.thunks import Edge, Hazard, Sequence, Slice

ARTEFACTS = frozenset({Hazard.REUSE, Hazard.INPLACE, Hazard.ORDER})
"""Reasons that the program does not have: sharing bytes, writing in place, the serial schedule."""


def path(sequence: Sequence[Slice], first: int, last: int) -> tuple[Edge, ...] | None:
    """Return the edges of a path from `first` to `last`, None where there is none.

    Of several, one with the fewest artefacts, then the shortest.
    """
    leaving: dict[int, list[Edge]] = {}
    for edge in sequence.edges:
        if first <= edge.src and edge.dst <= last:
            leaving.setdefault(edge.src, []).append(edge)
    best: dict[int, tuple[int, int]] = {first: (0, 0)}
    came: dict[int, Edge] = {}
    for at in range(first, last):  # program order is a topological order
        if at not in best:
            continue
        false, length = best[at]
        for edge in leaving.get(at, ()):
            cost = (false + (edge.hazard in ARTEFACTS), length + 1)
            if edge.dst not in best or cost < best[edge.dst]:
                best[edge.dst], came[edge.dst] = cost, edge
    if last not in best:
        return None
    edges = []
    while last != first:
        edges.append(came[last])
        last = came[last].src
    return tuple(reversed(edges))


def unordered_with(sequence: Sequence[Slice], at: int) -> tuple[int, ...]:
    """Return the thunks that neither wait for thunk `at` nor are waited for by it."""
    after = _reached(((e.src, e.dst) for e in sequence.edges), at)
    before = _reached(((e.dst, e.src) for e in sequence.edges), at)
    ordered = after | before
    return tuple(k for k in range(len(sequence.thunks)) if k not in ordered)


def _reached(arrows: Iterable[tuple[int, int]], start: int) -> set[int]:
    leaving: dict[int, list[int]] = {}
    for src, dst in arrows:
        leaving.setdefault(src, []).append(dst)
    found, pending = {start}, deque([start])
    while pending:
        for to in leaving.get(pending.popleft(), ()):
            if to not in found:
                found.add(to)
                pending.append(to)
    return found
