"""What `diff` says of two plans, as text and as JSON.

Neither has times, paths of files or slices, so that both do for golden files. Schema
`hlo2graph.diff`, version 1; sizes in bytes:

    schema   {"name": "hlo2graph.diff", "version": 1}
    before, after: names of modules
    settings null, or where the plans are for different machines or fused differently {"before":
             {"target", "fuse"}, "after": likewise}
    differ   bool: something is different but names and places in memory
    figures  {NAME: {"before", "after"}}: thunks and edges are counted in all
    thunks   [{"change": "added" | "removed" | "changed" | "moved" | "renamed", "in", "kind",
               "name", "before": the name before, or null, "inside": what changed in it, in words}]
    edges    [{"change": "gained" | "lost" | "reason", "in", "src", "dst", "hazard",
               "before": the hazard before, or null,
               "ordered": whether the other plan orders the two by another path; null where it
                          lacks one of them, or the edge is in both}]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from hlo2graph.inspect.diff.plans import BYTES, EdgeChange, PlanDiff, ThunkChange
from hlo2graph.inspect.figures import bytes_text, columns

SCHEMA = {"name": "hlo2graph.diff", "version": 1}
CHANGES = ("removed", "added", "changed", "moved", "renamed")
SHOWN = 40  # lines of one kind of change


def diff_text(diff: PlanDiff, *, whole: bool = False) -> str:
    """Return figures before and after, then each change; without `whole` long lists are cut."""
    names = diff.before if diff.before == diff.after else f"{diff.before} -> {diff.after}"
    lines = [names, *(f"  {line}" for line in _figures(diff))]
    if diff.settings:
        lines.append("A is for {}; B is for {}".format(*diff.settings))
    for change in CHANGES:
        lines += _cut([_thunk(t) for t in diff.thunks if t.change == change], whole)
    for change in ("lost", "gained", "reason"):
        lines += _cut([_edge(e) for e in diff.edges if e.change == change], whole)
    if not diff.differ:
        lines.append(_same(sum(t.change == "renamed" for t in diff.thunks)))
    return "\n".join(lines) + "\n"


def _same(renamed: int) -> str:
    return f"{renamed:,} renamed, otherwise no difference" if renamed else "no difference"


def _figures(diff: PlanDiff) -> list[str]:
    rows: list[tuple[str, ...]] = [("", "before", "after", "")]
    for name, (old, new) in _named(diff):
        said = [bytes_text(n) if name in BYTES else f"{n:,}" for n in (old, new)]
        rows.append((name, *said, _change(name, old, new)))
    return columns(rows, 1)


def _named(diff: PlanDiff) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the figures: what is counted in all says so where a plan has loops or branches."""
    is_nested = diff.outermost["thunks"] != diff.figures["thunks"]
    if is_nested:
        yield from diff.outermost.items()
    counted = (*diff.outermost, "false edges")
    for name, pair in diff.figures.items():
        yield f"{name} in all" if is_nested and name in counted else name, pair


def _change(name: str, old: int, new: int) -> str:
    if old == new:
        return ""
    if name in BYTES:
        return f"{100 * (new - old) / old:+.1f} %" if old else "new"
    return f"{new - old:+,}"


def _thunk(thunk: ThunkChange) -> str:
    was = f", was {thunk.before}" if thunk.before else ""
    within = f": {'; '.join(thunk.inside)}" if thunk.inside else ""
    return f"{thunk.change:8} {_in(thunk.where)}{thunk.kind} {thunk.name}{was}{within}"


def _edge(edge: EdgeChange) -> str:
    ends = f"{_in(edge.where)}{edge.src} -> {edge.dst}, {edge.hazard}"
    match edge.change, edge.ordered:
        case "reason", _:
            return f"edge     {ends}, was {edge.before}"
        case "lost", True:
            said = ": still ordered by a longer path"
        case "lost", False:
            said = ": no longer ordered"
        case "gained", True:
            said = ": was ordered by a longer path"
        case "gained", False:
            said = ": was not ordered"
        case _:
            said = ""
    return f"{edge.change:8} {ends}{said}"


def _in(where: str) -> str:
    return f"in {where}: " if where else ""


def _cut(lines: Sequence[str], whole: bool) -> Iterator[str]:
    shown = lines if whole else lines[:SHOWN]
    yield from shown
    if len(lines) > len(shown):
        yield f"  and {len(lines) - len(shown):,} more of these: --all lists them"


def diff_json(diff: PlanDiff) -> dict[str, Any]:
    """Return what `diff --json` prints."""
    return {
        "schema": SCHEMA,
        "before": diff.before,
        "after": diff.after,
        "settings": _settings(diff),
        "differ": diff.differ,
        "figures": {
            name: {"before": old, "after": new} for name, (old, new) in diff.figures.items()
        },
        "thunks": [
            {
                "change": thunk.change,
                "in": thunk.where,
                "kind": thunk.kind,
                "name": thunk.name,
                "before": thunk.before or None,
                "inside": list(thunk.inside),
            }
            for thunk in diff.thunks
        ],
        "edges": [
            {
                "change": edge.change,
                "in": edge.where,
                "src": edge.src,
                "dst": edge.dst,
                "hazard": str(edge.hazard),
                "before": str(edge.before) if edge.before else None,
                "ordered": edge.ordered,
            }
            for edge in diff.edges
        ],
    }


def _settings(diff: PlanDiff) -> dict[str, Any] | None:
    if diff.settings is None:
        return None
    return dict(zip(("before", "after"), map(asdict, diff.settings), strict=True))
