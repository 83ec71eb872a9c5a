"""Which thunks write over one of their operands.

It is done where every other reader of those bytes already precedes the writer by data flow;
failing that, only where the buffer that it saves exceeds INPLACE_THRESHOLD, and then each order
that it adds is labelled `inplace`. A whole new value never moves into the allocation of a result
or parameter, so that only the thunk that makes a result depends on where the caller wants it; a
partial update does, since otherwise it would have to copy. The program's own copies of a parameter
are left out, but for those of EARLY_THRESHOLD bytes that are updated in part: they wait for less
than the update does.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.program.buffers.classes import Buffer, Buffers
from hlo2graph.program.buffers.lifetimes import Handover, InPlace, Lifetimes
from hlo2graph.program.buffers.scopes import Uses, own_reads, own_writes
from hlo2graph.program.inplace import INPLACE_THRESHOLD, Pairs
from hlo2graph.program.order import PartialOrder
from hlo2graph.program.plan import AllocationKind
from hlo2graph.program.thunks import Copy, Thunk, Value

EARLY_THRESHOLD = 1 << 20


class InPlaceMerger:
    """Merges buffers; `added` says which value then makes its thunk wait for which others."""

    def __init__(
        self,
        uses: Uses,
        buffers: Buffers,
        lifetimes: Lifetimes,
        in_place: InPlace,
        orders: Sequence[PartialOrder],
    ) -> None:
        self.added: dict[int, set[Handover]] = {}
        self._uses = uses
        self._buffers = buffers
        self._lifetimes = lifetimes
        self._in_place = in_place
        self._orders = orders
        self._copied: dict[int, int] = {}
        self._updated: set[int] = set()  # values that thunks write over in part, if they may

    def run(self) -> None:
        """Try every thunk, in program order."""
        for _, _, thunk in self._uses.walk():
            reads = own_reads(thunk)
            self._updated.update(reads[r].id for r, _ in self._in_place(thunk)[0])
        for _, _, thunk in self._uses.walk():
            partial, elementwise = self._in_place(thunk)
            self._try(thunk, partial, True)
            self._try(thunk, elementwise, False)

    def _try(self, thunk: Thunk[Value], pairs: Pairs, partial: bool) -> None:
        reads, writes = own_reads(thunk), own_writes(thunk)
        for r, w in pairs:
            operand, result = reads[r].id, writes[w].id
            old, new = self._buffers.of[operand], self._buffers.of[result]
            if old is new or reads.count(reads[r]) > 1 or old.size != new.size or not old.size:
                continue
            if isinstance(thunk, Copy):
                self._copied[result] = self._contents(operand)
            if _only_read(thunk, old, new) and not self._is_early(result, new):
                self._buffers.merge(operand, result)
            elif _may_share(thunk, old, new, partial) and self._legal(old, new):
                if len(new.members) == 1 and not isinstance(thunk, Copy):
                    self._retire(old, operand, result)
                self._buffers.merge(operand, result)
                self._buffers.of[result].elementwise |= not partial

    def _is_early(self, value: int, buffer: Buffer) -> bool:
        """Tell whether a copy is large, and updated in part, perhaps long after it was made."""
        return buffer.size >= EARLY_THRESHOLD and value in self._updated

    def _retire(self, old: Buffer, operand: int, result: int) -> None:
        """Stop comparing with what `result` overwrites.

        Whoever is born later follows the result, and so all uses of what it overwrote. Not so in
        another branch, where that may be used and the result is not there.
        """
        home, content = self._uses.home, self._contents(operand)
        old.live = [
            value
            for value in old.live
            if self._contents(value) != content or home[value] != home[result]
        ]

    def _contents(self, value: int) -> int:
        """Return the value that `value` is a copy of, itself if of none."""
        return self._copied.get(value, value)

    def _legal(self, old: Buffer, new: Buffer) -> bool:
        """Every pair may share bytes, at a price that is worth it; notes the price."""
        added: dict[int, set[Handover]] = {}
        # The newest first: where it is illegal, that is mostly due to what lives now.
        for a in reversed(old.live if len(new.members) == 1 else old.members):
            for b in reversed(new.members):
                if self._contents(a) == self._contents(b):
                    continue  # copies may be alive together: neither is written over the other
                later = b
                found = self._lifetimes.ends_before(a, b)
                if found is None:
                    later = a
                    found = self._lifetimes.ends_before(b, a)
                if found is None:
                    return False
                missing = {h for h in found if not self._ordered(h)}
                if missing:
                    added.setdefault(later, set()).update(missing)
        if added and new.size <= INPLACE_THRESHOLD:
            return False
        for value, missing in added.items():
            self.added.setdefault(value, set()).update(missing)
        return True

    def _ordered(self, handover: Handover) -> bool:
        return self._orders[handover.scope].precedes(handover.earlier, handover.later)


def _only_read(thunk: Thunk[Value], old: Buffer, new: Buffer) -> bool:
    """A copy of a parameter or constant that nothing ever writes to."""
    return (
        isinstance(thunk, Copy)
        and old.is_given
        and new.kind is AllocationKind.TEMP
        and len(new.members) == 1
    )


def _may_share(thunk: Thunk[Value], old: Buffer, new: Buffer, partial: bool) -> bool:
    """The allocations that the two belong to allow it."""
    fixed = [b for b in (old, new) if b.kind is not AllocationKind.TEMP]
    if old.is_given or new.is_given or len(fixed) > 1:
        return False
    moved = old if new in fixed else new
    return not fixed or (partial and not (isinstance(thunk, Copy) and moved.elementwise))
