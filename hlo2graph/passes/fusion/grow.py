"""Growing groups from consumers to producers: the first half of fusion.

From the last instruction to the first, each joins the group that reads it:

- Where one group has all its readers, it joins that group, if the kernel is a good one.
- Where several groups have them, it joins each, if none of it is dear and all that becomes
  faster than making it once: its own kernel is gone then. But no fold of floats does whose order
  is its kernel's own: what compares a value with one made of the same fold would see two folds.
- Else it begins a group of its own, unless it is a view, which no kernel makes.

No path is lengthened and no cycle made: whoever needs a result waited for the producer and its
operands before, and waits for the operands alone now.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo2graph.passes.fusion.body import VIEWS, Body
from hlo2graph.passes.fusion.cost import MOST_AGAIN
from hlo2graph.passes.fusion.group import Group, Judge

MOST_READERS = 16  # kernels into which a cheap instruction is copied


@dataclass(slots=True)
class Growth:
    """The groups of a body: `homes` has the indices of the groups that hold an instruction."""

    body: Body
    judge: Judge
    groups: list[Group] = field(default_factory=list)
    homes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stays: set[str] = field(default_factory=set)  # views that are also needed outside of groups

    def run(self) -> tuple[Group, ...]:
        """Return the groups, each of one result."""
        body = self.body
        for name in reversed(body.in_order(body.live)):
            if name not in body.barred and name not in body.free:
                self._place(name)
        return tuple(self.groups)

    def _place(self, name: str) -> None:
        readers, outside = self._readers(name)
        opcode = self.body[name].opcode
        is_view, most = opcode in VIEWS, MOST_READERS
        if opcode == "broadcast":  # never worth its bytes
            most = len(readers)
        joined: list[Group] | None = None
        if readers and (is_view or not outside) and len(readers) <= most:
            joined = self._joined(name, readers)
        if joined is not None:
            for number, group in zip(readers, joined, strict=True):
                self.groups[number] = group
            self.homes[name] = readers
            if outside:
                self.stays.add(name)
        elif not is_view:
            self.groups.append(self.judge.alone(name))
            self.homes[name] = (len(self.groups) - 1,)

    def _readers(self, name: str) -> tuple[tuple[int, ...], bool]:
        """Return the groups that read `name`, and whether anything else does."""
        users = self.body.users.get(name, ())
        found = dict.fromkeys(g for user in users for g in self.homes.get(user, ()))
        outside = name == self.body.computation.root or any(
            u not in self.homes or u in self.stays for u in users
        )
        return tuple(found), outside

    def _joined(self, name: str, readers: tuple[int, ...]) -> list[Group] | None:
        """Return the readers with `name` in each, if that is better than making it once."""
        if len(readers) > 1 and self._is_made_once(name, len(readers)):
            return None
        before = [self.groups[number] for number in readers]
        after = []
        for group in before:
            found = self.judge.with_producer(group, name)
            if isinstance(found, str):
                return None
            after.append(found)
        gained = sum(g.cost.time for g in before) - sum(g.cost.time for g in after)
        return after if self.judge.is_worth(name, -gained) else None

    def _is_made_once(self, name: str, readers: int) -> bool:
        facts = self.judge.facts[name]
        return facts.varies or (facts.is_dear and facts.elements * (readers - 1) > MOST_AGAIN)
