"""Lanes over time: what runs beside what when every thunk starts as soon as its edges allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from hlo2graph.inspect.durations import Durations
from hlo2graph.program.device_figures import NODE_SECONDS
from hlo2graph.program.plan import Plan
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.thunks import While


@dataclass(frozen=True, slots=True)
class Bar:
    """A thunk's time: its id, seconds from the beginning, and the lane it is in."""

    id: int
    start: float
    end: float
    lane: int


def simulated(plan: Plan, durations: Durations) -> tuple[Bar, ...]:
    """Return when each thunk would run with no limit on how many run at once.

    A loop takes its rounds times one round; the thunks in it are shown in its first round. Of a
    conditional's branches the longest counts.
    """
    spans: list[tuple[int, float, float]] = []
    _run(number(plan.body), 0.0, durations, spans)
    lanes = lanes_of([(start, end) for _, start, end in spans])
    return tuple(
        Bar(id, start, end, lane) for (id, start, end), lane in zip(spans, lanes, strict=True)
    )


def traced(plan: Plan, durations: Durations) -> tuple[Bar, ...]:
    """Return when each thunk ran, where that was traced; a name that no thunk has is left out."""
    ids: dict[str, int] = {}
    pending = [number(plan.body)]
    for numbered in pending:
        for id, thunk in numbered:
            ids.setdefault(thunk.name, id)
            pending.extend(inner for _, inner in numbered.nested(id))
    known = [span for span in durations.spans if span[0] in ids]
    lanes = lanes_of([(begin, end) for _, begin, end in known])
    return tuple(
        Bar(ids[name], begin, end, lane)
        for (name, begin, end), lane in zip(known, lanes, strict=True)
    )


def lanes_of(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Return a lane for each span, the lowest that is free, so that none overlap in a lane."""
    lanes = [0] * len(spans)
    busy: list[tuple[float, int]] = []  # until when, which lane
    free: list[int] = []
    for at in sorted(range(len(spans)), key=lambda at: (spans[at][0], -spans[at][1], at)):
        start, end = spans[at]
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        lanes[at] = heappop(free) if free else len(busy)
        heappush(busy, (end, lanes[at]))
    return lanes


def _run(
    numbered: Numbered, start: float, durations: Durations, spans: list[tuple[int, float, float]]
) -> float:
    """Note when the thunks of a sequence run that starts at `start`; return when it ends."""
    last = start
    ready = [start] * len(numbered.sequence.thunks)
    leaving: dict[int, list[int]] = {}
    for edge in numbered.sequence.edges:
        leaving.setdefault(edge.src, []).append(edge.dst)
    for at, (id, thunk) in enumerate(numbered):
        began, place = ready[at], len(spans)
        inner = numbered.nested(id)
        if isinstance(thunk, While):
            end = began
            for _, held in inner:
                end = _run(held, end, durations, spans)
            end = began + (end - began) * max(1, thunk.trip_count or 1)
        elif inner:
            end = max(_run(held, began, durations, spans) for _, held in inner)
        else:
            end = began + (durations.each(thunk) or NODE_SECONDS)
        spans.insert(place, (id, began, max(end, began + NODE_SECONDS)))
        for dst in leaving.get(at, ()):
            ready[dst] = max(ready[dst], spans[place][2])
        last = max(last, spans[place][2])
    return last
