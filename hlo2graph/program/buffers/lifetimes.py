"""Whether one value is done with its bytes before another needs them, and what that rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from hlo2graph.hlo import Computation
from hlo2graph.program.buffers.scopes import START, Uses, own_reads, own_writes
from hlo2graph.program.inplace import Pairs, elementwise_updates, partial_updates
from hlo2graph.program.thunks import Conditional, Kernel, Thunk, Value, While


class Handover(NamedTuple):
    """In `scope`, the thunk at `earlier` must be done before the one at `later` starts."""

    scope: int
    earlier: int
    later: int


Handovers: TypeAlias = list[Handover]


class InPlace:
    """What each thunk may overwrite; kernels of one computation are looked at once."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations
        self._kernels: dict[str, tuple[Pairs, Pairs]] = {}

    def __call__(self, thunk: Thunk[Value]) -> tuple[Pairs, Pairs]:
        """Return `inplace.partial_updates` and `inplace.elementwise_updates`."""
        if not isinstance(thunk, Kernel):
            return self._look(thunk)
        found = self._kernels.get(thunk.computation)
        if found is None:
            found = self._kernels[thunk.computation] = self._look(thunk)
        return found

    def allows(self, thunk: Thunk[Value], operand: int, result: int) -> bool:
        """Value `result` of `thunk` may have the bytes of its `operand`, given by ids."""
        reads = [v.id for v in own_reads(thunk)]
        writes = [v.id for v in own_writes(thunk)]
        partial, elementwise = self(thunk)
        return reads.count(operand) == 1 and any(
            reads[r] == operand and writes[w] == result for r, w in (*partial, *elementwise)
        )

    def _look(self, thunk: Thunk[Value]) -> tuple[Pairs, Pairs]:
        return (
            partial_updates(thunk, self._computations),
            elementwise_updates(thunk, self._computations),
        )


class Lifetimes:
    """Compares the lives of values in program order."""

    def __init__(self, uses: Uses, in_place: InPlace) -> None:
        self._uses = uses
        self._in_place = in_place

    def ends_before(self, a: int, b: int) -> Handovers | None:
        """Return what must be ordered for `b` to follow `a`; None where `a` is used too late."""
        uses = self._uses
        scope = uses.common(uses.home[a], uses.home[b])
        return self._ends_before(a, b, scope, uses.seen_from(a, scope))

    def _ends_before(self, a: int, b: int, scope: int, times: list[int]) -> Handovers | None:
        uses = self._uses
        born = uses.seen_from(b, scope)[0]
        if times[-1] > born:
            return None
        found = [Handover(scope, time, born) for time in times if START < time < born]
        if times[-1] == born:
            inside = self._within(a, b, scope, born)
            if inside is None:
                return None
            found += inside
        return found

    def _within(self, a: int, b: int, scope: int, at: int) -> Handovers | None:
        """Do as `ends_before` where one thunk is the last to use `a` and the first to use `b`."""
        uses = self._uses
        thunks = uses.scopes[scope].sequence.thunks
        if not 0 <= at < len(thunks):
            return None
        match thunks[at]:
            case While() as loop:
                is_state = self._is_state(loop, a, b, scope, at)
                return [] if is_state or self._is_state(loop, b, a, scope, at) else None
            case Conditional():
                if uses.home[b] == scope:
                    return []  # written by the branches' results, which share b's bytes
                branch = uses.entry(uses.home[b], scope)[1]
                times = uses.times[a].get(branch)
                if times is None:
                    return []  # `a` is used in other branches, and one branch runs
                return self._ends_before(a, b, branch, times)
            case thunk:
                return [] if self._in_place.allows(thunk, a, b) else None

    def _is_state(self, loop: While[Value], state: int, inner: int, scope: int, at: int) -> bool:
        """Tell whether `state` is what the loop begins with, tests or ends with, and only that.

        For a value `inner` of its body it is then as good as what the body begins and ends with:
        these are at the same place.
        """
        uses = self._uses
        condition, body = uses.scopes[scope].children[at]
        if uses.common(uses.home[inner], body) != body:
            return False
        if state in (value.id for value in loop.condition.params):
            return True
        is_seen = any(child in uses.times[state] for child in (condition, body))
        return not is_seen and state in (value.id for value in (*loop.inits, *loop.results))
