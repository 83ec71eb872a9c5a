"""The thunk that a name stands for: its own name, its id, or an instruction inside its kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlo2graph.errors import InputError, Note
from hlo2graph.hlo import Computation, Module
from hlo2graph.inspect.explain.lost import MOST_NAMED, lost
from hlo2graph.program.plan import Plan
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.thunks import Collective, Kernel, Library, Slice, Thunk


@dataclass(frozen=True, slots=True)
class Place:
    """A thunk, where it stands, and the sequences around it, from the outermost on.

    `way` has a pair a level: the sequence, and the id in it of the thunk or of what holds it.
    `labels` names the sequences between: one less.
    """

    way: tuple[tuple[Numbered, int], ...]
    labels: tuple[str, ...]

    @property
    def id(self) -> int:
        """The thunk's id."""
        return self.way[-1][1]

    @property
    def thunk(self) -> Thunk[Slice]:
        """The thunk itself."""
        return self.at(len(self.way) - 1)

    def at(self, level: int) -> Thunk[Slice]:
        """Return the thunk, or what holds it, in the sequence of that level."""
        numbered, id = self.way[level]
        return numbered.sequence.thunks[id - numbered.first]

    @property
    def name(self) -> str:
        """The path of names: `loop/body/add.1`."""
        parts = [self.at(0).name]
        for level, label in enumerate(self.labels, 1):
            parts += [label, self.at(level).name]
        return "/".join(parts)


def find(plan: Plan, wanted: str, module: Module | None = None) -> Place:
    """Return the thunk called `wanted`.

    A thunk's own name comes first, then its path or id (`t3`), then an instruction that its kernel
    holds, inside fusions too. Raises InputError where there is none, or where several fit; `module`
    is what the plan was made of, if it is known.
    """
    places = list(_places(number(plan.body), (), ()))
    held = Instructions(plan.computations)
    for fits in (
        lambda p: p.thunk.name == wanted,
        lambda p: wanted in (p.name, f"t{p.id}"),
        lambda p: wanted in held.of(p.thunk),
    ):
        found = [place for place in places if fits(place)]
        if len(found) == 1:
            return found[0]
        if found:
            named = ", ".join(p.name for p in found[:MOST_NAMED])
            more = ", ..." if len(found) > MOST_NAMED else ""
            raise InputError(
                f"{len(found)} thunks are called {wanted} or hold an instruction of that name",
                notes=(Note(f"say which: {named}{more}"),),
            )
    known = {name for p in places for name in (p.thunk.name, *held.of(p.thunk))}
    raise lost(wanted, known, module)


def _places(
    numbered: Numbered, way: tuple[tuple[Numbered, int], ...], labels: tuple[str, ...]
) -> Iterator[Place]:
    for id, _ in numbered:
        here = (*way, (numbered, id))
        yield Place(here, labels)
        for label, inner in numbered.nested(id):
            yield from _places(inner, here, (*labels, label))


class Instructions:
    """The names of the instructions that a thunk's kernel holds."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations
        self._known: dict[str, frozenset[str]] = {}

    def of(self, thunk: Thunk[Slice]) -> frozenset[str]:
        """Return them, those of called computations too; none for what runs no computation."""
        if not isinstance(thunk, Kernel | Library | Collective):
            return frozenset()
        return self._in(thunk.computation)

    def _in(self, name: str) -> frozenset[str]:
        if name not in self._known:
            names: set[str] = set()
            for instr in self._computations[name].instructions:
                if instr.opcode != "parameter":
                    names.add(instr.name)
                for called in instr.called():
                    names |= self._in(called)
            self._known[name] = frozenset(names)
        return self._known[name]
