"""Taking out what nothing needs: thunks, and the leaves of loops and conditionals.

A stage of its own, which `--fuse none` leaves out: there a plan shows all that the module says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hlo2graph.hlo import Computation
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Kernel,
    Program,
    Sequence,
    Thunk,
    Value,
    While,
)
from hlo2graph.program.uses import computing, nested, reads, reads_of, writes


def drop_dead(program: Program) -> Program:
    """Return `program` without all that neither reaches a result nor has an effect.

    A leaf of loop state stays where the loop's result is used or something in the loop needs it.
    """
    body = _Rebuild(_Needs(program.body)).sequence(program.body)
    used = {value.id for value in reads_of(body)}
    constants = tuple(held for held in program.constants if held[0].id in used)
    called = _called(body, program.computations)
    computations = {k: c for k, c in program.computations.items() if k in called}
    return replace(program, body=body, constants=constants, computations=computations)


def _called(body: Sequence[Value], computations: Mapping[str, Computation]) -> set[str]:
    """Return the names of all computations that thunks run, and of those that these call."""
    found: set[str] = set()
    pending = [thunk.computation for thunk in computing(body)]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [c for i in computations[name].instructions for c in i.called()]
    return found


class _Needs:
    """Marks values and thunks, from results and effects backwards, all nesting levels at once."""

    def __init__(self, body: Sequence[Value]) -> None:
        self._around: dict[str, Thunk[Value]] = {}
        self._needs: dict[int, list[Value]] = {}  # what a value needs besides its thunk
        self._thunk: dict[int, Thunk[Value]] = {}  # what has to run for a value to be there
        self._values: set[int] = set()
        self._thunks: set[str] = set()
        self._todo: list[Value] = list(body.results)
        roots = list(self._enter(body, None))
        for thunk in roots:
            self._run(thunk)
        while self._todo:
            self._value(self._todo.pop())

    def value(self, value: Value) -> bool:
        """Tell whether something needs the value."""
        return value.id in self._values

    def thunk(self, thunk: Thunk[Value]) -> bool:
        """Tell whether the thunk has to run."""
        return thunk.name in self._thunks

    def _enter(
        self, sequence: Sequence[Value], around: Thunk[Value] | None
    ) -> Iterable[Thunk[Value]]:
        """Learn who writes what; yield the thunks with effects."""
        for thunk in sequence.thunks:
            if around is not None:
                self._around[thunk.name] = around
            match thunk:
                case While():
                    self._state(thunk)
                case Conditional():
                    for k, result in enumerate(thunk.results):
                        self._thunk[result.id] = thunk
                        self._needs[result.id] = [b.results[k] for b in thunk.branches]
                case _:
                    self._thunk.update((value.id, thunk) for value in writes(thunk))
            if isinstance(thunk, Collective) or (isinstance(thunk, Kernel) and thunk.effect):
                yield thunk
            for _, inner in nested(thunk):
                yield from self._enter(inner, thunk)

    def _state(self, loop: While[Value]) -> None:
        leaves = zip(
            loop.results,
            loop.body.params,
            loop.condition.params,
            loop.inits,
            loop.body.results,
            strict=True,
        )
        for result, param, tested, init, changed in leaves:
            for value in (result, param, tested):
                self._thunk[value.id] = loop
                self._needs[value.id] = [result, param, init, changed]

    def _value(self, value: Value) -> None:
        if value.id in self._values:
            return
        self._values.add(value.id)
        self._todo += self._needs.get(value.id, ())
        if value.id in self._thunk:
            self._run(self._thunk[value.id])

    def _run(self, thunk: Thunk[Value] | None) -> None:
        """Mark a thunk, those around it, and what they read in any case."""
        while thunk is not None and thunk.name not in self._thunks:
            self._thunks.add(thunk.name)
            match thunk:
                case While():
                    self._todo += thunk.condition.results
                case Conditional():
                    self._todo.append(thunk.selector)
                case _:
                    self._todo += reads(thunk)
            thunk = self._around.get(thunk.name)


class _Rebuild:
    """Makes the sequences again from what is needed."""

    def __init__(self, needs: _Needs) -> None:
        self._needs = needs

    def sequence(self, held: Sequence[Value]) -> Sequence[Value]:
        """Return a sequence of the thunks needed."""
        kept: list[Thunk[Value]] = []
        gone: dict[str, tuple[str, ...]] = {}  # thunks left out, and what they waited for
        for thunk in held.thunks:
            after = tuple(
                dict.fromkeys(name for held in thunk.after for name in gone.get(held, (held,)))
            )
            if not self._needs.thunk(thunk):
                gone[thunk.name] = after
                continue
            made = self._thunk(thunk)
            kept.append(replace(made, after=after) if after != thunk.after else made)
        return replace(held, thunks=tuple(kept))

    def _thunk(self, thunk: Thunk[Value]) -> Thunk[Value]:
        match thunk:
            case While():
                return self._while(thunk)
            case Conditional():
                return self._conditional(thunk)
            case _:
                return thunk

    def _while(self, loop: While[Value]) -> While[Value]:
        kept = [k for k, value in enumerate(loop.results) if self._needs.value(value)]

        def pick(values: tuple[Value, ...]) -> tuple[Value, ...]:
            return tuple(values[k] for k in kept)

        condition = self.sequence(loop.condition)
        body = self.sequence(loop.body)
        return replace(
            loop,
            inits=pick(loop.inits),
            results=pick(loop.results),
            condition=replace(condition, params=pick(condition.params)),
            body=replace(body, params=pick(body.params), results=pick(body.results)),
        )

    def _conditional(self, held: Conditional[Value]) -> Conditional[Value]:
        kept = [k for k, value in enumerate(held.results) if self._needs.value(value)]
        branches = (
            replace(inner, results=tuple(inner.results[k] for k in kept))
            for inner in map(self.sequence, held.branches)
        )
        return replace(held, results=tuple(held.results[k] for k in kept), branches=tuple(branches))
