"""Merging groups whose values are needed by several kernels: the second half of fusion.

A producer merges with one of the kernels that read it, and what others read of it becomes another
result; siblings, which read the same arrays, merge so that these are read once.

Every node (a group, or an instruction outside of groups) has a slot in a timetable: it begins when
all that it waits for has ended. A merge must find a slot of its own between the ends of what it
waits for and the beginnings of what waits for it; no other slot moves. So no kernel begins later
than before, whatever is merged, and the longest path stays as it was. And no cycle can come about:
each edge leads from a slot to a later one, before and after every merge.

Slots are as early as possible in a first sweep and as late as possible in a second one, where what
is not urgent has found room.

Concurrency: kernels that run at once share the device, so a kernel that does the work of siblings
with fewer bytes takes no longer than they do together. Siblings that share less than SHARED of the
bytes of the smaller one are not merged: they can run side by side as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from hlo2graph.passes.figures import LAUNCH_NS
from hlo2graph.passes.fusion.body import Body
from hlo2graph.passes.fusion.cost import time_outside
from hlo2graph.passes.fusion.facts import NO_WORK
from hlo2graph.passes.fusion.group import SLOWER, Group, Judge

SHARED = 0.25
MOST_TRIED = 8  # kernels that read the same value

TRIED = f"{MOST_TRIED} other kernels that read it were tried first"
LATER = "another kernel, which waits for one of them, would begin later"
APART = "they share too few bytes to gain by one pass"

Node: TypeAlias = "Group | str"  # an instruction outside of groups by its name


@dataclass(slots=True)
class Merging:
    """The groups of a body, being merged.

    maker: the node that each value comes from; readers: the nodes that read it.
    begin, end: of each node's slot; length: of those that are merged.
    """

    body: Body
    judge: Judge
    maker: dict[str, Node] = field(default_factory=dict)
    readers: dict[str, dict[Node, None]] = field(default_factory=dict)
    begin: dict[Node, int] = field(default_factory=dict)
    end: dict[Node, int] = field(default_factory=dict)
    length: dict[Group, int] = field(default_factory=dict)
    horizon: int = 0  # when all has ended
    is_late: bool = False

    @staticmethod
    def of(body: Body, judge: Judge, groups: Sequence[Group], stays: Set[str]) -> Merging:
        """Return the merging of `groups`; what is in none, or `stays`, is a node of its own."""
        found = Merging(body, judge)
        for group in groups:
            found.maker |= dict.fromkeys(group.results, group)
        inside = {name for group in groups for name in group.members}.difference(stays)
        for made in body.in_order(body.live):
            if made in found.maker or made not in inside:
                node = found.maker.setdefault(made, made)
                for name in found.reads(node):
                    found.readers.setdefault(name, {})[node] = None
        return found

    def run(self) -> tuple[Group, ...]:
        """Return the groups after all merges."""
        for self.is_late in (False, True):
            self.set_slots()
            for instr in self.body.computation.instructions:
                self._merge_around(instr.name)
        return self.groups()

    def groups(self) -> tuple[Group, ...]:
        """Return the groups there are."""
        return tuple(dict.fromkeys(n for n in self.maker.values() if isinstance(n, Group)))

    def reads(self, node: Node) -> Collection[str]:
        """Return the values that a node waits for."""
        if isinstance(node, Group):
            return node.inputs
        return dict.fromkeys(self.body.waits[node])

    def makes(self, node: Node) -> tuple[str, ...]:
        """Return the values that come from a node."""
        return node.results if isinstance(node, Group) else (node,)

    def is_kernel(self, node: Node) -> bool:
        """Tell whether a node takes time: what stands for others, or is known, does not."""
        return self._time(node) > 0

    def why_apart(self, producer: Node, reader: Node, view: str | None = None) -> str:
        """Return why a kernel and one that reads it, through a view or not, are not one."""
        for node in (producer, reader):
            if isinstance(node, str):
                return f"{node}: {self.body.barred[node]}"
        assert isinstance(producer, Group)
        assert isinstance(reader, Group)
        found = (
            self.judge.with_producer(reader, view)
            if view is not None
            else self.judge.union(producer, reader, self._needed(producer, reader))
        )
        if not isinstance(found, str):
            found = self._merged(producer, reader)
        return found if isinstance(found, str) else TRIED

    # ---- merges ---------------------------------------------------------------------------

    def _merge_around(self, value: str) -> None:
        """Merge what makes a value with what reads it, and those that read it with each other."""
        maker = self.maker.get(value)
        if maker is None:
            return
        if isinstance(maker, Group) and maker.cost.time:
            for reader in self._reading(value)[:MOST_TRIED]:
                found = self._merged(maker, reader)
                if isinstance(found, Group):
                    self._put(maker, reader, found)
                    maker = found
        last: Group | None = None
        for reader in self._reading(value):
            found = self._merged_siblings(last, reader) if last else APART
            if last is not None and isinstance(found, Group):
                self._put(last, reader, found)
                last = found
            else:
                last = reader

    def _reading(self, value: str) -> list[Group]:
        """Return the kernels that read a value, those that begin first in front."""
        found = [n for n in self.readers.get(value, ()) if isinstance(n, Group) and n.cost.time]
        return sorted(found, key=self.begin.__getitem__)

    def _merged(self, one: Group, other: Group) -> Group | str:
        """Return a producer and its reader as one, or why they stay two."""
        if self._slot(one, other, max(self._time(one), self._time(other))) is None:
            return LATER
        found = self.judge.union(one, other, self._needed(one, other))
        if isinstance(found, str):
            return found
        if found.cost.time > one.cost.time + other.cost.time:
            return SLOWER
        return found if self._slot(one, other, self._length(one, other, found)) else LATER

    def _merged_siblings(self, one: Group, other: Group) -> Group | str:
        shared = sum(self.body[i].shape.size for i in set(one.inputs).intersection(other.inputs))
        if shared < SHARED * min(one.cost.bytes, other.cost.bytes):
            return APART
        return self._merged(one, other)

    def _needed(self, one: Group, other: Group) -> Iterator[str]:
        """Yield the results of both that something else needs."""
        for name in dict.fromkeys((*one.results, *other.results)):
            others = self.readers.get(name, {}).keys() - {one, other}
            if others or name == self.body.computation.root:
                yield name

    def _put(self, one: Group, other: Group, whole: Group) -> None:
        """Let `whole` stand for both."""
        self.length[whole] = self._length(one, other, whole)
        slot = self._slot(one, other, self.length[whole])
        assert slot is not None
        for part in (one, other):
            for name in part.inputs:
                self.readers[name].pop(part, None)
            for name in part.results:
                self.maker.pop(name, None)
        self.begin[whole], self.end[whole] = slot
        self.maker |= dict.fromkeys(whole.results, whole)
        for name in whole.inputs:
            self.readers.setdefault(name, {})[whole] = None

    def _length(self, one: Group, other: Group, whole: Group) -> int:
        """Return how long a merge takes; of siblings no longer than they would at once."""
        lengths, times = (self._time(one), self._time(other)), (one.cost.time, other.cost.time)
        alone = max(LAUNCH_NS, whole.cost.time - sum(times) + sum(lengths))
        one_reads = not set(one.inputs).isdisjoint(other.results)
        other_reads = not set(other.inputs).isdisjoint(one.results)
        if one_reads or other_reads or whole.cost.time > sum(times) - LAUNCH_NS:
            return alone
        return min(alone, max(lengths))

    # ---- the timetable --------------------------------------------------------------------

    def _slot(self, one: Group, other: Group, time: int) -> tuple[int, int] | None:
        """Return when a kernel of both may begin and end; None where it would move others."""
        both = (one, other)
        before = {self.maker[i] for part in both for i in part.inputs}.difference(both)
        after = {n for p in both for r in p.results for n in self.readers.get(r, ())}
        after.difference_update(both)
        first = max((self.end[n] for n in before), default=0)
        last = min((self.begin[n] for n in after), default=self.horizon)
        if first + time > last:
            return None
        return (last - time, last) if self.is_late else (first, first + time)

    def set_slots(self) -> None:
        """Give each node the earliest slot, or the latest one that ends by the horizon."""
        order = self.in_order()
        self.begin, self.end = {}, {}
        for node in order:
            self.begin[node] = max((self.end[self.maker[v]] for v in self.reads(node)), default=0)
            self.end[node] = self.begin[node] + self._time(node)
        self.horizon = max(self.end.values(), default=0)
        for node in reversed(order if self.is_late else ()):
            after = (self.begin[n] for v in self.makes(node) for n in self.readers.get(v, ()))
            self.end[node] = min(after, default=self.horizon)
            self.begin[node] = self.end[node] - self._time(node)

    def in_order(self) -> list[Node]:
        """Return the nodes, each behind those it waits for."""
        found: dict[Node, None] = {}
        for node in self.maker.values():
            stack = [node]
            while stack:
                before = (self.maker[v] for v in self.reads(stack[-1]))
                missing = [n for n in before if n not in found]
                if missing:
                    stack += missing
                else:
                    found[stack.pop()] = None
        return list(found)

    def _time(self, node: Node) -> int:
        if isinstance(node, Group):
            return self.length.get(node, node.cost.time)
        instr = self.body[node]
        if node in self.body.free or instr.opcode in NO_WORK:
            return 0
        return time_outside(instr, [self.body[o].shape for o in instr.operands])
