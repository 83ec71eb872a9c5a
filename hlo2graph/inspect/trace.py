"""One run as a trace that Perfetto and Chrome open: lanes, arrows for edges, bytes alive.

The JSON is Chrome's trace event format, times in microseconds:

    X   a node's run: name, kind, and in args the thunk, its op_name, source line and bytes
    s f an edge, from just before the end of one run to the beginning of the other; f has bp e
    C   bytes of temporaries that hold a value
    M   names of the process and of its lanes

A lane holds one run at a time, and within a loop's or conditional's the runs that it holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeAlias

from hlo2graph.hlo.metadata import op_name, source_line
from hlo2graph.inspect.lifetimes import lifetimes
from hlo2graph.inspect.profile import Profile
from hlo2graph.program.plan import Plan
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Slice, Thunk
from hlo2graph.program.uses import reads, writes

Json: TypeAlias = dict[str, Any]
PROCESS = 1
LIVE = "live bytes"


@dataclass(frozen=True, slots=True)
class Run:
    """One launch of a thunk: its id, nanoseconds, the id of the loop or branch around it."""

    id: int
    begin: int
    end: int
    holder: int | None


def trace_json(found: Profile, plan: Plan, tables: str = "") -> Json:
    """Return the trace of a profile; `tables` are the module's, for source lines."""
    body = number(found.body)
    thunks, holders = dict[int, Thunk[Slice]](), dict[int, int | None]()
    _list(body, None, thunks, holders)
    launches = _launches(found, thunks)
    runs = sorted(
        (Run(id, begin, end, holders[id]) for id, held in launches.items() for begin, end in held),
        key=lambda run: (run.begin, -run.end, run.id),
    )
    start = runs[0].begin if runs else 0
    lanes = _lanes(runs)
    shown = [
        _shown(run, lane, thunks[run.id], start, tables)
        for run, lane in zip(runs, lanes, strict=True)
    ]
    lane_of = {(run.id, run.begin): lane for run, lane in zip(runs, lanes, strict=True)}
    lifted = replace(plan, body=found.body)
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "program": plan.name,
            "target": plan.target,
            "fuse": plan.fuse,
            "times": found.how,
        },
        "traceEvents": [
            *_names(plan.name, max(lanes, default=-1) + 1),
            *shown,
            *_arrows(body, launches, lane_of, start, count(1)),
            *_counters(lifted, launches, start),
        ],
    }


def _list(
    numbered: Numbered,
    holder: int | None,
    thunks: dict[int, Thunk[Slice]],
    holders: dict[int, int | None],
) -> None:
    """Note every thunk by id, and what holds it."""
    for id, thunk in numbered:
        thunks[id], holders[id] = thunk, holder
        for _, inner in numbered.nested(id):
            _list(inner, id, thunks, holders)


def _launches(
    found: Profile, thunks: Mapping[int, Thunk[Slice]]
) -> dict[int, list[tuple[int, int]]]:
    """Return when each thunk ran, in order."""
    ids: dict[str, list[int]] = defaultdict(list)
    for id, thunk in thunks.items():
        ids[thunk.name].append(id)
    launches: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for node in (*found.nodes, *found.holders):
        known = ids[node.name]
        at = known.pop(0) if len(known) > 1 else known[0]  # of several of one name, in order
        launches[at] += [(int(begin), int(end)) for begin, end in node.times]
    return launches


def _lanes(runs: list[Run]) -> list[int]:
    """Return a lane for each run: that of what holds it where there is room, else the lowest."""
    stacks: list[list[Run]] = []
    lanes = []
    for run in runs:
        for stack in stacks:
            while stack and stack[-1].end <= run.begin:
                stack.pop()
        fitting = [k for k, stack in enumerate(stacks) if _fits(run, stack)]
        lane = min(fitting, key=lambda k: (not stacks[k], k), default=len(stacks))
        if lane == len(stacks):
            stacks.append([])
        stacks[lane].append(run)
        lanes.append(lane)
    return lanes


def _fits(run: Run, stack: list[Run]) -> bool:
    return not stack or (stack[-1].id == run.holder and run.end <= stack[-1].end)


def _names(program: str, lanes: int) -> Iterator[Json]:
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": program}}
    for lane in range(lanes):
        who = {"ph": "M", "pid": PROCESS, "tid": lane + 1}
        yield who | {"name": "thread_name", "args": {"name": f"lane {lane + 1}"}}
        yield who | {"name": "thread_sort_index", "args": {"sort_index": lane}}


def _shown(run: Run, lane: int, thunk: Thunk[Slice], start: int, tables: str) -> Json:
    about: Json = {
        "thunk": f"t{run.id}",
        "read_bytes": sum(s.size for s in reads(thunk)),
        "written_bytes": sum(s.size for s in writes(thunk)),
    }
    if name := op_name(thunk.metadata):
        about["op_name"] = name
    if line := source_line(tables, thunk.metadata):
        about["source"] = line
    return {
        "ph": "X",
        "pid": PROCESS,
        "tid": lane + 1,
        "name": thunk.name,
        "cat": kind_of(thunk),
        "ts": _micro(run.begin - start),
        "dur": _micro(run.end - run.begin),
        "args": about,
    }


def _arrows(
    numbered: Numbered,
    launches: Mapping[int, list[tuple[int, int]]],
    lane_of: Mapping[tuple[int, int], int],
    start: int,
    numbers: Iterator[int],
) -> Iterator[Json]:
    """Yield both ends of an arrow for each edge and each time that its sequence ran.

    `numbers` are their ids: viewers take strings as hexadecimal.

    Thunks without stamps have no arrows, nor have those of which not every launch is kept.
    """
    for edge in numbered.sequence.edges:
        src, dst = numbered.first + edge.src, numbered.first + edge.dst
        before, after = launches.get(src, []), launches.get(dst, [])
        if len(before) != len(after):
            continue
        for (begin, end), (at, _) in zip(before, after, strict=True):
            if at < begin:  # put on the device early: there is nothing to see
                continue
            about = {"src": f"t{src}", "dst": f"t{dst}"}
            if edge.slice is not None:
                about["bytes"] = str(edge.slice)
            both = {
                "pid": PROCESS,
                "cat": "edge",
                "name": str(edge.hazard),
                "id": next(numbers),
                "args": about,
            }
            # Within the run, so that viewers find whose end it is.
            leaving = min(max(begin, end - 1), at)
            tid = lane_of[src, begin] + 1
            yield both | {"ph": "s", "tid": tid, "ts": _micro(leaving - start)}
            tid = lane_of[dst, at] + 1
            yield both | {"ph": "f", "bp": "e", "tid": tid, "ts": _micro(at - start)}
    for id, _ in numbered:
        for _, inner in numbered.nested(id):
            yield from _arrows(inner, launches, lane_of, start, numbers)


def _counters(
    plan: Plan, launches: Mapping[int, list[tuple[int, int]]], start: int
) -> Iterator[Json]:
    """Yield the bytes alive whenever they change.

    A value lives from where its writer first begins to where its last reader last ends. What has
    no stamps is taken to run where program order has it.
    """
    found = lifetimes(plan)
    begins, ends = _times(number(plan.body), launches, start)
    steps: dict[int, int] = defaultdict(int)
    for value in found.values:
        steps[begins[value.first]] += value.slice.size
        steps[max(ends[value.last], begins[value.first])] -= value.slice.size
    for time, size in found.in_place:
        steps[begins[time]] -= size
        steps[max(ends[time], begins[time])] += size
    total = 0
    for time, step in sorted(steps.items()):
        if step:
            total += step
            yield {
                "ph": "C",
                "pid": PROCESS,
                "name": LIVE,
                "ts": _micro(time - start),
                "args": {"bytes": total},
            }


def _times(
    body: Numbered, launches: Mapping[int, list[tuple[int, int]]], start: int
) -> tuple[list[int], list[int]]:
    """Return when the thunks begin and end, in program order, nested ones in place.

    What is not known begins and ends where the one before ends. The last thunk of a loop ends with
    the loop, up to which the values that the next round reads are held.
    """
    begins: list[int] = []
    ends: list[int] = []

    def go(numbered: Numbered) -> None:
        for id, _ in numbered:
            at, held = len(ends), launches.get(id)
            last = ends[-1] if ends else start
            begins.append(held[0][0] if held else last)
            ends.append(held[-1][1] if held else last)
            inner = numbered.nested(id)
            for _, sequence in inner:
                go(sequence)
            if inner:
                ends[-1] = max(ends[at:])

    go(body)
    return begins, ends


def _micro(nanoseconds: int) -> float:
    return nanoseconds / 1e3
