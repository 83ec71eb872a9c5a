"""What has changed from one plan to another: thunks, edges, and figures."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from hlo2graph.inspect.diff.inside import inside
from hlo2graph.inspect.diff.likeness import Likenesses
from hlo2graph.inspect.diff.match import match_thunks
from hlo2graph.inspect.explain.paths import ARTEFACTS
from hlo2graph.program.order import PartialOrder
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import plan_stats
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Hazard, Sequence, Slice, Thunk
from hlo2graph.program.uses import nested, placed

OUTERMOST = ("thunks", "edges")  # that are counted in all too
FIGURES = (
    *("thunks", "edges", "false edges", "width", "critical path"),
    *("arena", "alive at once", "sum of buffers"),
)
BYTES = frozenset(FIGURES[-3:])


@dataclass(frozen=True, slots=True)
class ThunkChange:
    """A thunk added, removed, changed or moved; `where` says what holds it.

    kind: added, removed, changed (another computation under one name and place), moved (behind
    what it was in front of), renamed. `name` is what it is called now, or was before it went.
    """

    change: str
    where: str
    kind: str
    name: str
    before: str = ""  # the name before, where it was renamed
    inside: tuple[str, ...] = ()  # what changed in it, in words


@dataclass(frozen=True, slots=True)
class EdgeChange:
    """An edge gained, lost, or now there for another reason (`before`).

    ordered: the other plan orders the two all the same, by a longer path; None where it lacks one
    of them.
    """

    change: str
    where: str
    src: str
    dst: str
    hazard: Hazard
    before: Hazard | None = None
    ordered: bool | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a plan is for."""

    target: str
    fuse: str

    def __str__(self) -> str:
        return f"{self.target}, fuse {self.fuse}"


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """Two plans side by side; figures are (before, after) by name.

    Thunks and edges are counted in all there; `outermost` has those of the outermost sequences.
    """

    before: str
    after: str
    figures: dict[str, tuple[int, int]]
    thunks: tuple[ThunkChange, ...]
    edges: tuple[EdgeChange, ...]
    outermost: dict[str, tuple[int, int]]
    settings: tuple[Settings, Settings] | None = None  # what both are for, where that differs

    @property
    def differ(self) -> bool:
        """Something is different but names and places."""
        figures = any(old != new for old, new in self.figures.values())
        return figures or bool(self.edges) or any(t.change != "renamed" for t in self.thunks)


def diff_plans(before: Plan, after: Plan) -> PlanDiff:
    """Match the thunks of two plans, and return what is different."""
    likes = Likenesses(before), Likenesses(after)
    thunks: list[ThunkChange] = []
    edges: list[EdgeChange] = []
    inner = partial(inside, before=before.computations, after=after.computations)
    for where, old, new, matched in _pairs(before.body, after.body, "", likes):
        thunks += _thunk_changes(where, old, new, matched, likes, inner)
        edges += _edge_changes(where, old, new, matched)
    figures = dict(zip(FIGURES, zip(_figures(before), _figures(after), strict=True), strict=True))
    old_for, new_for = (Settings(plan.target, plan.fuse) for plan in (before, after))
    return PlanDiff(
        before.name,
        after.name,
        figures,
        tuple(thunks),
        tuple(edges),
        dict(zip(OUTERMOST, zip(_outermost(before), _outermost(after), strict=True), strict=True)),
        None if old_for == new_for else (old_for, new_for),
    )


def _figures(plan: Plan) -> tuple[int, ...]:
    stats = plan_stats(plan)
    edges = (edge for _, sequence in placed(plan.body) for edge in sequence.edges)
    return (
        stats.nodes_in_all,
        stats.edges_in_all,
        sum(edge.hazard in ARTEFACTS for edge in edges),
        stats.width,
        stats.critical_path,
        stats.arena_bytes,
        stats.lower_bound_bytes,
        stats.sum_bytes,
    )


def _outermost(plan: Plan) -> tuple[int, ...]:
    return len(plan.body.thunks), len(plan.body.edges)


_Likes = tuple[Likenesses, Likenesses]
EMPTY: Sequence[Slice] = Sequence(())


def _pairs(
    old: Sequence[Slice], new: Sequence[Slice], where: str, likes: _Likes
) -> Iterator[tuple[str, Sequence[Slice], Sequence[Slice], dict[int, int]]]:
    """Yield the sequences to hold against each other, against none for what only one has.

    With each two come the positions in the second by those in the first.
    """
    matched = match_thunks(old, new, *likes)
    yield where, old, new, matched
    taken = {other: one for one, other in matched.items()}
    for at, thunk in enumerate(new.thunks):
        inside = dict(nested(old.thunks[taken[at]])) if at in taken else {}
        for label, inner in nested(thunk):
            yield from _pairs(inside.get(label, EMPTY), inner, _below(where, thunk, label), likes)
    for at, thunk in enumerate(old.thunks):
        inside = dict(nested(new.thunks[matched[at]])) if at in matched else {}
        for label, inner in nested(thunk):
            if label not in inside:
                yield from _pairs(inner, EMPTY, _below(where, thunk, label), likes)


def _below(where: str, thunk: Thunk[Slice], label: str) -> str:
    return "/".join(part for part in (where, thunk.name, label) if part)


def _thunk_changes(
    where: str,
    old: Sequence[Slice],
    new: Sequence[Slice],
    matched: dict[int, int],
    likes: _Likes,
    inner: Callable[[Thunk[Slice], Thunk[Slice]], tuple[str, ...]],
) -> Iterator[ThunkChange]:
    for at, thunk in enumerate(old.thunks):
        if at not in matched:
            yield ThunkChange("removed", where, kind_of(thunk), thunk.name)
    taken = {other: one for one, other in matched.items()}
    stayed = _longest_rising([taken[at] for at in range(len(new.thunks)) if at in taken])
    for at, thunk in enumerate(new.thunks):
        if at not in taken:
            yield ThunkChange("added", where, kind_of(thunk), thunk.name)
            continue
        was = old.thunks[taken[at]]
        if likes[0].of(was) != likes[1].of(thunk):
            within = inner(was, thunk)
            yield ThunkChange("changed", where, kind_of(thunk), thunk.name, inside=within)
        if taken[at] not in stayed:
            yield ThunkChange("moved", where, kind_of(thunk), thunk.name)
        if was.name != thunk.name:
            yield ThunkChange("renamed", where, kind_of(thunk), thunk.name, was.name)


def _longest_rising(numbers: list[int]) -> set[int]:
    """Return a longest part of different numbers that rises: all others have moved."""
    ends: list[int] = []  # the least last number of a rising part of each length
    at_end: list[int] = []  # its place
    before: list[int] = []
    for at, number in enumerate(numbers):
        length = bisect_left(ends, number)
        before.append(at_end[length - 1] if length else -1)
        ends[length : length + 1] = [number]
        at_end[length : length + 1] = [at]
    found: set[int] = set()
    at = at_end[-1] if at_end else -1
    while at >= 0:
        found.add(numbers[at])
        at = before[at]
    return found


def _edge_changes(
    where: str, old: Sequence[Slice], new: Sequence[Slice], matched: dict[int, int]
) -> Iterator[EdgeChange]:
    taken = {other: one for one, other in matched.items()}
    held = {(edge.src, edge.dst): edge.hazard for edge in new.edges}
    was = {(edge.src, edge.dst): edge.hazard for edge in old.edges}
    orders = _order(old), _order(new)
    for edge in old.edges:
        ends = matched.get(edge.src), matched.get(edge.dst)
        names = old.thunks[edge.src].name, old.thunks[edge.dst].name
        if ends in held:
            continue
        ordered = _precedes(orders[1], *ends)
        yield EdgeChange("lost", where, *names, edge.hazard, ordered=ordered)
    for edge in new.edges:
        ends = taken.get(edge.src), taken.get(edge.dst)
        names = new.thunks[edge.src].name, new.thunks[edge.dst].name
        before = was.get(ends) if None not in ends else None  # type: ignore[arg-type]
        if before is None:
            ordered = _precedes(orders[0], *ends)
            yield EdgeChange("gained", where, *names, edge.hazard, ordered=ordered)
        elif before is not edge.hazard:
            yield EdgeChange("reason", where, *names, edge.hazard, before)


def _order(sequence: Sequence[Slice]) -> PartialOrder:
    sources: list[list[int]] = [[] for _ in sequence.thunks]
    for edge in sequence.edges:
        sources[edge.dst].append(edge.src)
    order = PartialOrder()
    for found in sources:
        order.join(found)
    return order


def _precedes(order: PartialOrder, src: int | None, dst: int | None) -> bool | None:
    if src is None or dst is None:
        return None
    return src < dst and order.precedes(src, dst)
