"""How a capture policy parts a plan: its graphs, the thunks in none, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hlo2graph.backends.cuda.partial.cut import Alone, Cutter, Part, Region, thunks_of
from hlo2graph.backends.cuda.partial.policy import Policy
from hlo2graph.inspect.figures import plural
from hlo2graph.program.plan import Plan
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Slice, Thunk

NAMED = 4  # thunks of a graph that the text names
LISTED = 12  # lone thunks that a summary lists


@dataclass(frozen=True, slots=True)
class Captured:
    """Graphs and lone thunks in the order in which they run, each with its place.

    A thunk that writes no byte is in neither: nothing runs for it.
    """

    parts: tuple[tuple[str, Part], ...]

    @staticmethod
    def of(plan: Plan, capture: str) -> Captured:
        """Part `plan` by a policy. Raises InputError for what is none."""
        cutter = Cutter(plan, Policy.of(capture))
        return Captured(
            tuple(
                (w, part) for w, part in cutter.walk(plan.body) if any(map(thunks_of, held(part)))
            )
        )

    @property
    def graphs(self) -> tuple[Region, ...]:
        """The graphs."""
        return tuple(part for _, part in self.parts if isinstance(part, Region))

    @property
    def alone(self) -> tuple[tuple[str, Alone], ...]:
        """The thunks in none, each with its place."""
        return tuple((where, part) for where, part in self.parts if isinstance(part, Alone))

    @property
    def head(self) -> str:
        """How many there are, in words."""
        sizes = [sum(map(thunks_of, graph.sequence.thunks)) for graph in self.graphs]
        counted = f" of {_joined([f'{n:,}' for n in sizes])} thunks" if sizes else ""
        if sizes == [1]:
            counted = " of 1 thunk"
        lone = len(self.alone)
        rest = f"{plural(lone, 'thunk')} enqueued by {'itself' if lone == 1 else 'themselves'}"
        return f"{plural(len(sizes), 'graph')}{counted}; {rest}"

    def summary(self) -> list[str]:
        """Return the head, and lone thunks with their reasons, as many as one wants to read."""
        alone = self.alone
        lines = [f"{part.thunk.name} {part.why}" for _, part in alone[:LISTED]]
        more = [f"and {len(alone) - LISTED:,} more"] if len(alone) > LISTED else []
        return [self.head + (":" if lines else ""), *lines, *more]

    def lines(self) -> Iterator[str]:
        """Yield a line for each graph and each lone thunk, those in loops and branches indented."""
        number = 0
        for where, part in self.parts:
            indent = "  " * ((where.count("/") + 1) // 2)  # a place is pairs of name and label
            match part:
                case Region():
                    yield f"{indent}graph {number}: {_names(part.sequence.thunks)}"
                    number += 1
                case Alone():
                    thunk = part.thunk
                    yield f"{indent}{kind_of(thunk)} {thunk.name}: {part.why}"

    def json(self) -> dict[str, Any]:
        """Return the graphs and the lone thunks for programs."""
        return {
            "graphs": [
                {"where": where, "thunks": [t.name for t in held(part)]}
                for where, part in self.parts
                if isinstance(part, Region)
            ],
            "alone": [
                {
                    "where": where,
                    "name": part.thunk.name,
                    "kind": kind_of(part.thunk),
                    "why": part.why,
                }
                for where, part in self.alone
            ],
        }


def held(part: Part) -> tuple[Thunk[Slice], ...]:
    """Return the thunks of a part."""
    return part.sequence.thunks if isinstance(part, Region) else (part.thunk,)


def _names(thunks: tuple[Thunk[Slice], ...]) -> str:
    shown = ", ".join(t.name for t in thunks[:NAMED])
    return shown + (f" and {len(thunks) - NAMED:,} more" if len(thunks) > NAMED else "")


def _joined(items: list[str]) -> str:
    """Join as in `5, 4 and 2`; many are counted."""
    if len(items) > LISTED:
        return f"{items[0]} to {items[-1]}"
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
