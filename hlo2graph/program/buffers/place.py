"""Give every buffer of the arena its offset, walking each sequence in program order.

A buffer takes free bytes for nothing where data flow orders all who used them before its birth.
What a policy allows beyond that adds edges, which enter the order at once. A loop or conditional
is one thunk of its sequence: what is nested takes bytes that are free for that thunk as a whole,
the parts of a loop and the branches of a conditional each the same ones, and afterwards all of it
was used by that thunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hlo2graph.program.buffers.model import Model, Temp
from hlo2graph.program.buffers.space import Block, Debt, Space, runs
from hlo2graph.program.order import PartialOrder


@dataclass(frozen=True, slots=True)
class Policy:
    """How far bytes may be reused where data flow does not order it.

    reuse: how often the bytes of one buffer may be, -1 for any number of times.
    limit: the arena grows up to this size before any such reuse.
    offsets: where every buffer goes, by `Temp.order`, if that is settled.
    """

    reuse: int = 0
    limit: int = 0
    offsets: Mapping[int, int] | None = None


@dataclass(slots=True)
class Placement:
    """Offsets by `Temp.order`, and what they cost in edges and on the longest path."""

    offsets: dict[int, int] = field(default_factory=dict)
    size: int = 0
    reused: set[int] = field(default_factory=set)  # first values of buffers that add an edge
    path: int = 0


class _Choice(NamedTuple):
    """Put a buffer at `start` of adjacent `blocks`; the least of several choices is the best."""

    over: int  # bytes beyond the size up to which growing is preferred
    deeper: int  # what waiting adds to the longest path to this thunk
    growth: int
    left: int  # bytes of the blocks that stay free
    start: int
    blocks: tuple[Block, ...]


def place(model: Model, policy: Policy) -> Placement:
    """Return where each buffer of the arena goes under `policy`."""
    placer = _Placer(model, policy)
    placer.run()
    return placer.made


class _Placer:
    def __init__(self, model: Model, policy: Policy) -> None:
        self.model = model
        self.policy = policy
        self.made = Placement()

    def run(self) -> None:
        space = Space(self.policy.reuse)
        if self.policy.offsets is not None:
            ends = (self.policy.offsets[t.order] + t.size for t in self.model.temps)
            self.made.size = max(ends, default=0)
            space.add(Block(0, self.made.size, 0))
        order, _ = self._sequence(0, space)
        self.made.path = max(order.depth, default=0)

    def _sequence(self, scope: int, space: Space) -> tuple[PartialOrder, list[tuple[int, int]]]:
        """Place what is born in `scope`; return its order and all bytes that it used."""
        order = PartialOrder()
        used: list[tuple[int, int]] = []
        placed: dict[int, tuple[int, int]] = {}  # start, spent
        for at, predecessors in enumerate(self.model.predecessors[scope]):
            order.join(predecessors)
            for temp in self.model.births.get((scope, at), ()):
                if temp.size:
                    placed[temp.order] = self._give(temp, order, space)
            used += self._nested(scope, at, order, space)
            for temp in self.model.deaths.get((scope, at), ()):
                if temp.size:
                    start, spent = placed.pop(temp.order)
                    mask = sum(1 << time for time in temp.times)
                    space.add(Block(start, start + temp.size, mask, spent))
                    used.append((start, start + temp.size))
        # What lives to the end of the sequence.
        sizes = self.model.temps
        used += ((start, start + sizes[number].size) for number, (start, _) in placed.items())
        return order, used

    def _give(self, temp: Temp, order: PartialOrder, space: Space) -> tuple[int, int]:
        """Place `temp` at the thunk appended last; return its start and how often it was spent."""
        choice = self._choose(temp, order, space)
        at = len(order) - 1
        row = order.ancestors(at)
        spent, waits = 0, False
        for block in choice.blocks:
            missing = block.mask & ~row
            _wait(order, at, missing)
            for debt in block.debts:
                _wait(debt.order, debt.at, debt.mask)
            out_of_order = bool(missing or block.debts)
            waits |= out_of_order
            spent = max(spent, block.spent + out_of_order)
        if waits:
            self.made.reused.add(temp.first)
        end = choice.start + temp.size
        space.take(choice.blocks, choice.start, end)
        self.made.size = max(self.made.size, end)
        self.made.offsets[temp.order] = choice.start
        return choice.start, spent

    def _choose(self, temp: Temp, order: PartialOrder, space: Space) -> _Choice:
        if self.policy.offsets is not None:
            return _settled(space, self.policy.offsets[temp.order], temp.size)
        ordered = []
        for block in space.ordered(order.ancestors(len(order) - 1)):
            if block.size == temp.size:
                return _Choice(0, 0, 0, 0, block.start, (block,))
            ordered.append(block)
        free = runs(ordered)
        fits = [
            _Choice(0, 0, 0, size - temp.size, run[0].start, tuple(run))
            for run in free
            if (size := run[-1].end - run[0].start) >= temp.size
        ]
        if fits:
            best = min(fits)
            return best._replace(blocks=_cover(best, temp.size))
        grown = self._grown(temp, free)
        if self.policy.reuse and grown.over:
            return min([grown, *self._out_of_order(temp, order, space)], key=lambda c: c[:5])
        return grown

    def _grown(self, temp: Temp, free: list[list[Block]]) -> _Choice:
        top = self.made.size
        last = next((run for run in free if run[-1].end == top), [])
        start = last[0].start if last else top
        return self._growing(start, temp.size, 0, tuple(last))

    def _growing(self, start: int, size: int, deeper: int, blocks: tuple[Block, ...]) -> _Choice:
        """Return the choice of `blocks` up to the arena's end and, if that is too little, more."""
        end, top = start + size, self.made.size
        over = max(0, max(end, top) - self.policy.limit) if self.policy.reuse else 0
        left = sum(b.size for b in blocks) - size
        return _Choice(over, deeper, max(0, end - top), max(0, left), start, blocks)

    def _out_of_order(self, temp: Temp, order: PartialOrder, space: Space) -> Iterator[_Choice]:
        """Yield the ways to take bytes that data flow does not free."""
        row = order.ancestors(len(order) - 1)
        allowed = {b.start: b for b in space.unspent()}
        allowed.update((b.start, b) for b in space.ordered(row))
        for run in runs(allowed.values()):
            for first in range(len(run)):
                start, stop = run[first].start, first
                while stop < len(run) and run[stop].start < start + temp.size:
                    stop += 1
                blocks = tuple(run[first:stop])
                if blocks[-1].end >= start + temp.size or blocks[-1].end == self.made.size:
                    yield self._growing(start, temp.size, _deeper(order, row, blocks), blocks)

    def _nested(
        self, scope: int, at: int, order: PartialOrder, space: Space
    ) -> list[tuple[int, int]]:
        """Place what is nested in thunk `at`; return the bytes used."""
        children = self.model.uses.scopes[scope].children.get(at, ())
        inside = [child for child in children if child in self.model.occupied]
        if not inside:
            return []
        taken = self._lend(order, space)
        lent = [lent for _, lent in taken]
        top = self.made.size
        used: list[tuple[int, int]] = []
        for child in inside:
            below = Space(self.policy.reuse, [*lent, Block(top, self.made.size, 0)])
            _, touched = self._sequence(child, below)
            used += touched
        for block, _ in taken:
            space.take([block], block.start, block.end)
        rest = [block for block, _ in taken]
        for start, end in _union(used):
            spent = max(
                (b.spent + bool(b.debts) for b in lent if b.start < end and start < b.end),
                default=0,
            )
            space.add(Block(start, end, 1 << at, spent))
            rest = [part for block in rest for part in _less(block, start, end)]
        for block in rest:
            space.add(block)
        return used

    def _lend(self, order: PartialOrder, space: Space) -> list[tuple[Block, Block]]:
        """Return what the thunk appended last may use, as it is here and as it is inside that."""
        at = len(order) - 1
        row = order.ancestors(at)
        found = []
        for block in list(space):
            missing = block.mask & ~row
            if missing and not self._may_reuse(block):
                continue
            debts = (*block.debts, Debt(order, at, missing)) if missing else block.debts
            found.append((block, Block(block.start, block.end, 0, block.spent, debts)))
        return found

    def _may_reuse(self, block: Block) -> bool:
        allowed = self.policy.reuse
        return self.policy.offsets is not None or allowed < 0 or block.spent < allowed


def _settled(space: Space, start: int, size: int) -> _Choice:
    blocks = space.within(start, start + size)
    assert sum(min(b.end, start + size) - max(b.start, start) for b in blocks) == size
    return _Choice(0, 0, 0, 0, start, blocks)


def _cover(choice: _Choice, size: int) -> tuple[Block, ...]:
    return tuple(b for b in choice.blocks if b.start < choice.start + size)


def _deeper(order: PartialOrder, row: int, blocks: tuple[Block, ...]) -> int:
    """Return how much longer the path to the thunk appended last gets by waiting for `blocks`."""
    deeper = 0
    for block in blocks:
        users = block.mask & ~row
        deeper = max(deeper, _latest(order, users) + 1 - order.depth[-1])
        for debt in block.debts:
            wait = _latest(debt.order, debt.mask) + 1 - debt.order.depth[debt.at]
            deeper = max(deeper, wait)
    return deeper


def _latest(order: PartialOrder, users: int) -> int:
    """Return the depth of the deepest of `users`."""
    return max((order.depth[user] for user in _members(users)), default=0)


def _wait(order: PartialOrder, at: int, users: int) -> None:
    """Let thunk `at`, the last, wait for all in the bit set `users`."""
    for user in _members(users):
        order.add_edge(user, at)


def _members(users: int) -> Iterator[int]:
    """Yield the members of a bit set, the last first."""
    while users:
        user = users.bit_length() - 1
        users ^= 1 << user
        yield user


def _union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same bytes as ranges that neither overlap nor touch."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _less(block: Block, start: int, end: int) -> Iterator[Block]:
    """Yield what [start, end) leaves of `block`."""
    if end <= block.start or block.end <= start:
        yield block
        return
    if block.start < start:
        yield block._replace(end=start)
    if end < block.end:
        yield block._replace(start=end)
