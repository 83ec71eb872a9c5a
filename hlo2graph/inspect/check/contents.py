"""Whether every byte is written before it is read, and nothing is written that must not be."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hlo2graph.inspect.check.finding import Finding, Kind
from hlo2graph.program.plan import AllocationKind, Plan
from hlo2graph.program.thunks import Conditional, Library, Sequence, Slice, Thunk, While
from hlo2graph.program.uses import reads, writes

FILLED = (AllocationKind.PARAMETER, AllocationKind.CONSTANT)


def check_contents(plan: Plan) -> Iterator[Finding]:
    """Yield reads of what nothing wrote, writes to what is not the plan's, misplaced slices."""
    written = _Written()
    for index, allocation in enumerate(plan.allocations):
        if allocation.kind in FILLED:
            written.add(Slice(index, 0, allocation.size))
    checker = _Contents(plan)
    yield from checker.sequence(plan.body, written, "")
    for output in plan.outputs:
        if not written.holds(output.slice):
            text = f"the result {output.name} is read from {output.slice}, which nothing writes"
            yield Finding(Kind.UNWRITTEN, "", text)


class _Written:
    """The bytes that hold something: ranges apart from each other, in order, an allocation."""

    def __init__(self) -> None:
        self._starts: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}

    def copy(self) -> _Written:
        found = _Written()
        found._starts = {index: [*starts] for index, starts in self._starts.items()}
        found._ends = {index: [*ends] for index, ends in self._ends.items()}
        return found

    def add(self, slice_: Slice) -> None:
        if not slice_.size:
            return
        starts = self._starts.setdefault(slice_.allocation, [])
        ends = self._ends.setdefault(slice_.allocation, [])
        first, last = bisect_left(ends, slice_.offset), bisect_right(starts, slice_.end)
        start = min([slice_.offset, *starts[first : min(first + 1, last)]])
        end = max([slice_.end, *ends[max(last - 1, first) : last]])
        starts[first:last], ends[first:last] = [start], [end]

    def holds(self, slice_: Slice) -> bool:
        if not slice_.size:
            return True
        ends = self._ends.get(slice_.allocation, [])
        at = bisect_right(ends, slice_.offset)
        return (
            at < len(ends)
            and self._starts[slice_.allocation][at] <= slice_.offset
            and slice_.end <= ends[at]
        )


class _Contents:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.donated = {bound.slice.allocation for bound in plan.outputs}

    def sequence(
        self, sequence: Sequence[Slice], written: _Written, where: str
    ) -> Iterator[Finding]:
        """Check thunks in program order; `written` grows by what they write."""
        for thunk in sequence.thunks:
            for finding in self._thunk(thunk, written, where):
                yield finding if finding.span else replace(finding, span=thunk.span)

    def _thunk(self, thunk: Thunk[Slice], written: _Written, where: str) -> Iterator[Finding]:
        inside = f"{where}/{thunk.name}" if where else thunk.name
        match thunk:
            case While():
                yield from self._loop(thunk, written, where, inside)
            case Conditional():
                yield from self._branches(thunk, written, where, inside)
            case _:
                yield from self._straight(thunk, written, where)

    def _straight(self, thunk: Thunk[Slice], written: _Written, where: str) -> Iterator[Finding]:
        yield from self._read(thunk.name, reads(thunk), written, where)
        for slice_ in writes(thunk):
            yield from self._placed(thunk.name, slice_, where)
            kind = self._kind(slice_)
            donated = kind is AllocationKind.PARAMETER and slice_.allocation in self.donated
            if slice_.size and kind in FILLED and not donated:
                owner = self.plan.allocations[slice_.allocation].owner
                text = f"{thunk.name} writes {slice_}, the {kind} {owner}"
                yield Finding(Kind.PROTECTED, where, text)
            written.add(slice_)
        yield from _overlaps(thunk, where)

    def _read(
        self, name: str, slices: Iterable[Slice], written: _Written, where: str
    ) -> Iterator[Finding]:
        for slice_ in slices:
            yield from self._placed(name, slice_, where)
            if not written.holds(slice_):
                text = f"{name} reads {slice_}, not all of which was written"
                yield Finding(Kind.UNWRITTEN, where, text)

    def _loop(
        self, loop: While[Slice], written: _Written, where: str, inside: str
    ) -> Iterator[Finding]:
        yield from self._read(loop.name, loop.inits, written, where)
        places = zip(
            loop.inits,
            loop.condition.params,
            loop.body.params,
            loop.body.results,
            loop.results,
            strict=True,
        )
        for number, state in enumerate(places):
            if len(set(state)) > 1:
                text = f"state {number} of {loop.name} lies at {', '.join(map(str, state))}"
                yield Finding(Kind.STATE, where, text)
        yield from self.sequence(loop.condition, written, f"{inside}/condition")
        yield from self._read(loop.name, loop.condition.results, written, where)
        round_ = written.copy()
        yield from self.sequence(loop.body, round_, f"{inside}/body")
        yield from self._read(loop.name, loop.body.results, round_, where)

    def _branches(
        self, thunk: Conditional[Slice], written: _Written, where: str, inside: str
    ) -> Iterator[Finding]:
        yield from self._read(thunk.name, (thunk.selector,), written, where)
        for number, branch in enumerate(thunk.branches):
            taken = written.copy()
            yield from self.sequence(branch, taken, f"{inside}/branch_{number}")
            yield from self._read(thunk.name, branch.results, taken, where)
        for result in thunk.results:
            written.add(result)

    def _placed(self, name: str, slice_: Slice, where: str) -> Iterator[Finding]:
        known = slice_.allocation < len(self.plan.allocations)
        if not known or slice_.end > self.plan.allocations[slice_.allocation].size:
            text = f"{name} touches {slice_}, which reaches past its allocation"
            yield Finding(Kind.BOUNDS, where, text)

    def _kind(self, slice_: Slice) -> AllocationKind:
        return self.plan.allocations[slice_.allocation].kind


def _overlaps(thunk: Thunk[Slice], where: str) -> Iterator[Finding]:
    """Yield a thunk's writes that lie over each other, or askew over what it reads."""
    made = writes(thunk)
    for at, one in enumerate(made):
        for other in made[at + 1 :]:
            if one.overlaps(other):
                yield Finding(Kind.OVERLAP, where, f"{thunk.name} writes {one} and {other}")
        for read in reads(thunk):
            is_whole = read == one and not isinstance(thunk, Library)
            if one.overlaps(read) and not is_whole:
                text = f"{thunk.name} writes {one} while it reads {read}"
                yield Finding(Kind.OVERLAP, where, text)
