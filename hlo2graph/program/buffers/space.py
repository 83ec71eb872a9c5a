"""Free bytes of the arena, each block with those who must be done with it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hlo2graph.program.order import PartialOrder

CONSIDERED = 64  # blocks looked at for one value; bounds the cost where thousands are free


class Debt(NamedTuple):
    """Thunk `at` of an enclosing sequence must wait for all in `mask`, should the block be used."""

    order: PartialOrder
    at: int
    mask: int


class Block(NamedTuple):
    """Free bytes [start, end). `mask` has a bit for each thunk of this sequence that used them.

    spent: how often they went to a value that data flow did not order after the last.
    """

    start: int
    end: int
    mask: int
    spent: int = 0
    debts: tuple[Debt, ...] = ()

    @property
    def size(self) -> int:
        """Bytes in it."""
        return self.end - self.start


class Space:
    """The free blocks of one sequence, found by the last thunk that used each or by address.

    reuse: how often bytes may be handed over out of order, -1 any number of times.
    """

    def __init__(self, reuse: int, blocks: Iterable[Block] = ()) -> None:
        self._reuse = reuse
        self._by_last: dict[int, list[Block]] = {}  # 0: not used in this sequence; p + 1: by p
        self._last = 0  # a bit for each key
        self._unspent = 0  # a bit for each key that has a block to hand over out of order
        self._starts: list[int] = []
        self._at: dict[int, Block] = {}
        for block in blocks:
            self.add(block)

    def add(self, block: Block) -> None:
        """Make `block` free."""
        if block.start < block.end:
            last = block.mask.bit_length()
            self._by_last.setdefault(last, []).append(block)
            self._last |= 1 << last
            if self._may_reuse(block):
                self._unspent |= 1 << last
            insort(self._starts, block.start)
            self._at[block.start] = block

    def take(self, blocks: Iterable[Block], start: int, end: int) -> None:
        """Let [start, end) of `blocks` be in use; what they have beyond stays free."""
        for block in blocks:
            last = block.mask.bit_length()
            rest = self._by_last[last]
            rest.remove(block)
            if not rest:
                self._last &= ~(1 << last)
            if not any(self._may_reuse(b) for b in rest):
                self._unspent &= ~(1 << last)
            del self._starts[bisect_left(self._starts, block.start)]
            del self._at[block.start]
            self.add(block._replace(end=min(block.end, start)))
            self.add(block._replace(start=max(block.start, end)))

    def ordered(self, row: int) -> Iterator[Block]:
        """Yield blocks whose users are all in `row`, the last used first."""
        looked = 0
        waiting = self._last & (row << 1 | 1)
        while waiting and looked < CONSIDERED:
            last = waiting.bit_length() - 1
            waiting ^= 1 << last
            blocks = self._by_last[last]
            looked += len(blocks)
            for block in blocks:
                if not block.debts and block.mask & row == block.mask:
                    yield block

    def unspent(self) -> list[Block]:
        """Return blocks that may be handed over out of order once more, the first used first."""
        found: list[Block] = []
        waiting = self._unspent
        while waiting and len(found) < CONSIDERED:
            lowest = waiting & -waiting
            waiting ^= lowest
            blocks = self._by_last[lowest.bit_length() - 1]
            found += (b for b in blocks if self._may_reuse(b))
        return found

    def _may_reuse(self, block: Block) -> bool:
        return self._reuse < 0 or block.spent < self._reuse

    def within(self, start: int, end: int) -> tuple[Block, ...]:
        """Return the blocks that have bytes of [start, end), by address."""
        first = max(0, bisect_right(self._starts, start) - 1)
        last = bisect_left(self._starts, end)
        found = (self._at[at] for at in self._starts[first:last])
        return tuple(block for block in found if block.end > start)

    def __iter__(self) -> Iterator[Block]:
        return (self._at[start] for start in self._starts)


def runs(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return `blocks` by address, adjacent ones together."""
    found: list[list[Block]] = []
    for block in sorted(blocks, key=lambda b: b.start):
        if found and found[-1][-1].end == block.start:
            found[-1].append(block)
        else:
            found.append([block])
    return found
