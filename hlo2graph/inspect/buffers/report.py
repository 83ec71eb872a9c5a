"""What `buffers` says of a plan, as text and as JSON.

Schema `hlo2graph.buffers`, version 1; sizes and offsets in bytes, thunks by their ids:

    schema       {"name": "hlo2graph.buffers", "version": 1}
    module, target, fuse: strings
    arena        {"size", "lower_bound", "sum"}: as in the plan's text
    peak         {"bytes", "thunk": id or null, "name", "in", "held": [VALUE]}: largest first
    aliases      [string]: each input-output alias, honoured or why not
    allocations  [{"index", "size", "kind", "owner", "values": [VALUE]}]
    VALUE        {"name", "in", "allocation", "offset", "size", "born": id or null,
                  "last": id or null, "kept": bool}

`in` names the loop or branch that a value lives in, '' for the plan's body. `born` is null for what
is there before the first thunk, `last` for what no thunk reads; `kept` are results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hlo2graph.inspect.buffers.lives import Life, lives_of
from hlo2graph.inspect.buffers.peak import Peak, find_peak
from hlo2graph.inspect.figures import bytes_text, columns, plural
from hlo2graph.program.plan import Allocation, AllocationKind, Plan

SCHEMA = {"name": "hlo2graph.buffers", "version": 1}
HONOURED = ": honoured"
SHOWN = 24  # lines of one list in the text


@dataclass(frozen=True, slots=True)
class BuffersReport:
    """A plan, when its arena is fullest, and every value with the sequence it lives in."""

    plan: Plan
    peak: Peak
    values: tuple[tuple[str, Life], ...]


def report_buffers(plan: Plan) -> BuffersReport:
    """Look at where everything of a plan lives."""
    lives = lives_of(plan)
    values = [(part.where, life) for part in lives.walk() for life in part.values]
    return BuffersReport(plan, find_peak(plan, lives), tuple(values))


def buffers_text(report: BuffersReport, *, whole: bool = False) -> str:
    """Return the report as text; without `whole` long lists are cut to their largest."""
    plan = report.plan
    lines = [f"{plan.name}   target {plan.target}, fuse {plan.fuse}"]
    lines += [f"  {name:10} {said}" for name, said in _totals(plan)]
    lines += _peak(report.peak, whole)
    lines += _aliases(plan, whole)
    lines += ["", *_allocations(report, whole)]
    return "\n".join(lines) + "\n"


def _totals(plan: Plan) -> Iterator[tuple[str, str]]:
    arena = plan.arena
    over = (
        f", {arena.size / arena.lower_bound:.2f} times what is alive at once"
        if arena.lower_bound
        else ""
    )
    yield (
        "arena",
        f"{bytes_text(arena.size)}, alive at once {bytes_text(arena.lower_bound)}, "
        f"sum of buffers {bytes_text(arena.sum)}{over}",
    )
    sizes: defaultdict[AllocationKind, list[int]] = defaultdict(list)
    for held in plan.allocations:
        sizes[held.kind].append(held.size)
    for kind in (AllocationKind.PARAMETER, AllocationKind.CONSTANT, AllocationKind.LIVE_OUT):
        if kind in sizes:
            yield str(kind), f"{bytes_text(sum(sizes[kind]))} in {len(sizes[kind])}"


def _peak(peak: Peak, whole: bool) -> Iterator[str]:
    if peak.id is None:
        yield "  peak       no temporaries"
        return
    where = f" in {peak.where}" if peak.where else ""
    size = bytes_text(peak.bytes)
    yield f"  peak       {size} live while t{peak.id} {peak.name} runs{where}, held by"
    shown = peak.held if whole else peak.held[:SHOWN]
    rows = [(bytes_text(v.slice.size), v.name, str(v.slice), _span(v)) for v in shown]
    yield from (f"    {line}" for line in _right_first(rows))
    yield from _more(len(peak.held) - len(shown), "value")


def _aliases(plan: Plan, whole: bool) -> Iterator[str]:
    """Yield what became of each alias, those that are not honoured first."""
    lines = sorted(plan.aliases, key=lambda line: line.endswith(HONOURED))
    broken = sum(not line.endswith(HONOURED) for line in lines)
    asked = f"{len(lines):,} asked for, {len(lines) - broken:,} honoured"
    yield f"  aliases    {asked if lines else 'none asked for'}"
    shown = lines if whole else lines[: max(SHOWN, broken)]
    yield from (f"  alias      {line}" for line in shown)
    yield from _more(len(lines) - len(shown), "alias")


def _allocations(report: BuffersReport, whole: bool) -> Iterator[str]:
    values: defaultdict[int, list[tuple[str, Life]]] = defaultdict(list)
    for where, life in report.values:
        values[life.slice.allocation].append((where, life))
    held = list(enumerate(report.plan.allocations))
    if not whole:
        arena = [(i, a) for i, a in held if a.kind is AllocationKind.TEMP]
        others = [(i, a) for i, a in held if a.kind is not AllocationKind.TEMP]
        largest = sorted(others, key=lambda pair: -pair[1].size)[:SHOWN]
        held = sorted((*largest, *arena), key=lambda pair: pair[0])
    for index, allocation in held:
        yield _heading(index, allocation)
        yield from _values(values[index], whole)
    yield from _more(len(report.plan.allocations) - len(held), "allocation")


def _heading(index: int, allocation: Allocation) -> str:
    owner = f" {allocation.owner}" if allocation.owner else ""
    return f"allocation {index}: {bytes_text(allocation.size)}, {allocation.kind}{owner}"


def _values(values: Sequence[tuple[str, Life]], whole: bool) -> Iterator[str]:
    shown = list(values)
    if not whole and len(shown) > SHOWN:
        largest = sorted(range(len(shown)), key=lambda i: -shown[i][1].slice.size)[:SHOWN]
        shown = [shown[i] for i in sorted(largest)]
    rows = []
    for where, life in shown:
        place = f"[{life.slice.offset}:{life.slice.end}]"
        rows.append((place, life.name, _span(life), f"in {where}" if where else ""))
    yield from (f"  {line}" for line in columns(rows, 4) if rows)
    yield from _more(len(values) - len(shown), "value")


def _span(life: Life) -> str:
    """Return `t1 to t4`, `from the start to t4`, `t3, never read`, ..."""
    start = "start" if life.born is None else f"t{life.born}"
    if life.kept:
        return f"{start} to end"
    return f"{start}, never read" if life.last is None else f"{start} to t{life.last}"


def _right_first(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align the first column to the right, all others to the left."""
    width = max((len(row[0]) for row in rows), default=0)
    return columns([(row[0].rjust(width), *row[1:]) for row in rows], 4) if rows else []


def _more(count: int, noun: str) -> Iterator[str]:
    if count:
        yield f"    and {plural(count, noun)} more: --all lists them"


def buffers_json(report: BuffersReport) -> dict[str, Any]:
    """Return what `buffers --json` prints."""
    plan, peak = report.plan, report.peak
    values: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    places = {id(life): where for where, life in report.values}
    for where, life in report.values:
        values[life.slice.allocation].append(_value(where, life))
    return {
        "schema": SCHEMA,
        "module": plan.name,
        "target": plan.target,
        "fuse": plan.fuse,
        "arena": {
            "size": plan.arena.size,
            "lower_bound": plan.arena.lower_bound,
            "sum": plan.arena.sum,
        },
        "peak": {
            "bytes": peak.bytes,
            "thunk": peak.id,
            "name": peak.name,
            "in": peak.where,
            "held": [_value(places[id(life)], life) for life in peak.held],
        },
        "aliases": list(plan.aliases),
        "allocations": [
            {
                "index": index,
                "size": held.size,
                "kind": str(held.kind),
                "owner": held.owner,
                "values": values[index],
            }
            for index, held in enumerate(plan.allocations)
        ],
    }


def _value(where: str, life: Life) -> dict[str, Any]:
    return {
        "name": life.name,
        "in": where,
        "allocation": life.slice.allocation,
        "offset": life.slice.offset,
        "size": life.slice.size,
        "born": life.born,
        "last": life.last,
        "kept": life.kept,
    }
