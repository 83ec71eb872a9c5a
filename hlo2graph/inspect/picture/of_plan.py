"""A plan as a picture: a node a thunk, an arrow an edge, loops and branches as groups.

Ids are the thunk ids of the plan's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from hlo2graph.errors import InputError
from hlo2graph.inspect.dot_find import find_sequence
from hlo2graph.inspect.dot_labels import Labels, counted, shortened
from hlo2graph.inspect.explain.find import Instructions
from hlo2graph.inspect.figures import bytes_text, in_all
from hlo2graph.inspect.picture.keys import Keys
from hlo2graph.inspect.picture.model import OUTERMOST, Arrow, Group, Node, Picture
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import critical_path, plan_stats
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Edge, Slice, Thunk


@dataclass(frozen=True, slots=True)
class _View:
    """What is drawn: how deep, and with which times."""

    labels: Labels
    instructions: Instructions
    keys: Keys
    depth: int | None
    seconds: Callable[[Thunk[Slice]], float | None]

    def opened(self, numbered: Numbered, id: int, level: int) -> tuple[tuple[str, Numbered], ...]:
        """Return the sequences inside a thunk that are to be drawn."""
        return numbered.nested(id) if self.depth is None or level < self.depth else ()


def picture_of_plan(
    plan: Plan,
    *,
    depth: int | None = None,
    computation: str | None = None,
    tables: str = "",
    seconds: Callable[[Thunk[Slice]], float | None] = lambda _: None,
) -> Picture:
    """Return the plan as a picture.

    depth: how many levels of loops and branches to open; None opens all, 0 none.
    computation: only what is inside this loop or conditional: its name, or `name/body`.
    tables: the module's stack-frame tables, for source lines in labels.
    seconds: how long a thunk takes.

    Raises InputError for options that fit nothing.
    """
    if depth is not None and depth < 0:
        raise InputError("depth is 0 or more")
    numbered = number(plan.body)
    if computation is not None:
        numbered = find_sequence(numbered, computation)
    held = Instructions(plan.computations)
    view = _View(Labels(plan, tables), held, Keys(plan.computations), depth, seconds)
    title = plan.name if computation is None else f"{plan.name}: {computation}"
    return Picture(
        _caption(plan, title),
        tuple(_nodes(view, numbered, OUTERMOST, 0)),
        tuple(_arrows(view, numbered, 0)),
        tuple(_groups(view, numbered, OUTERMOST, 0)),
    )


def _caption(plan: Plan, title: str) -> tuple[str, ...]:
    stats = plan_stats(plan)
    kinds = ", ".join(f"{count} {hazard}" for hazard, count in stats.by_hazard.items())
    counts = f"{counted(stats.nodes, 'thunk')}, {counted(stats.edges, 'edge')}" + (
        f" ({kinds})" if kinds else ""
    )
    return (
        shortened(title),
        f"{counts}, width {stats.width}{in_all(stats)}",
        f"critical path {stats.critical_path} (bold), arena {bytes_text(stats.arena_bytes)}",
    )


def _nodes(
    view: _View, numbered: Numbered, group: str, level: int, path: str = ""
) -> Iterator[Node]:
    critical = set(critical_path(numbered.sequence)) if level == 0 else ()
    for id, thunk in numbered:
        opened = view.opened(numbered, id, level)
        hidden = () if opened else numbered.nested(id)
        name, *lines = view.labels.node(thunk, hidden, bool(opened)).split("\n")
        yield Node(
            f"t{id}",
            name,
            kind_of(thunk),
            tuple(lines),
            view.labels.tooltip(thunk),
            group,
            view.instructions.of(thunk) | {thunk.name, path + thunk.name},
            view.keys.thunk(thunk),
            id - numbered.first in critical,
            view.seconds(thunk),
        )
        for label, inner in opened:
            inside = f"{path}{thunk.name}/{label}/"
            yield from _nodes(view, inner, f"t{id}_{label}", level + 1, inside)


def _groups(view: _View, numbered: Numbered, group: str, level: int) -> Iterator[Group]:
    for id, _ in numbered:
        for label, inner in view.opened(numbered, id, level):
            yield Group(f"t{id}_{label}", label, f"t{id}", group)
            yield from _groups(view, inner, f"t{id}_{label}", level + 1)


def _arrows(view: _View, numbered: Numbered, level: int) -> Iterator[Arrow]:
    critical = set(pairwise(critical_path(numbered.sequence))) if level == 0 else ()
    for edge in numbered.sequence.edges:
        yield _arrow(numbered, edge, is_critical=(edge.src, edge.dst) in critical)
    for id, _ in numbered:
        for _, inner in view.opened(numbered, id, level):
            yield from _arrows(view, inner, level + 1)


def _arrow(numbered: Numbered, edge: Edge, *, is_critical: bool) -> Arrow:
    held = edge.slice
    label = str(edge.hazard) if held is None else f"{edge.hazard} {bytes_text(held.size)}"
    tooltip = str(edge.hazard) if held is None else f"{edge.hazard} {held}"
    src, dst = (f"t{numbered.first + at}" for at in (edge.src, edge.dst))
    return Arrow(src, dst, edge.hazard, label, tooltip, is_critical)
