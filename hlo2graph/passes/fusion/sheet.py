"""What the members of a kernel need of each other: elements computed, places in the text, bytes.

Members come in from the last to the first, so that all that reads one is there before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from hlo2graph.ops.region import Columns, Loop, Own, Region, Rows
from hlo2graph.passes.fusion.body import VIEWS, Body
from hlo2graph.passes.fusion.cost import GRAIN, MOST_REPEATED, Cost
from hlo2graph.passes.fusion.facts import IN_PLACE, Facts, facts_of

_FOLDS = (Rows, Columns)
_OWN = frozenset({0})  # the index of the results
_NONE = frozenset[int]()


class Table(dict[str, Facts]):
    """The facts of a body's instructions, each found when first asked for."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body

    def __missing__(self, name: str) -> Facts:
        found = self[name] = facts_of(self.body, name)
        return found


@dataclass(slots=True)
class Sheet:
    """The needs of members and inputs so far.

    here: elements needed at the readers' own index, and at how many places in the text.
    moved: the same at other indices.
    indices: at which indices a value is computed, each time anew, by their numbers.
    inputs: the bytes read of others.
    turned: what is read across the grain.
    shifted: what is read for other indices than its own.
    fed: what goes into a product, whose form asks for it again for each tile.
    once: what a fold's form computes once an element, however often it is looked at.
    behind: what waits for a product, and so is computed at its index.
    """

    table: Table
    results: frozenset[str]
    region: Region | None
    in_place: frozenset[str]
    once: frozenset[str]
    behind: frozenset[str]
    here: dict[str, tuple[int, int]] = field(default_factory=dict)
    moved: dict[str, tuple[int, int]] = field(default_factory=dict)
    indices: dict[str, frozenset[int]] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    turned: set[str] = field(default_factory=set)
    shifted: set[str] = field(default_factory=set)
    fed: set[str] = field(default_factory=set)
    bytes: int = 0
    work: int = 0
    again: int = 0
    instructions: int = 0
    written: int = 0
    repeated: int = 0
    numbers: int = 1

    @staticmethod
    def of(table: Table, members: Set[str], results: Iterable[str], region: Region | None) -> Sheet:
        """Return the sheet of a whole kernel."""
        wanted = frozenset(results)
        order = table.body.in_order(members)
        once = _computed_once(table, order, region)
        behind = _waiting(table, order) if isinstance(region, Own) else frozenset[str]()
        in_place = updated_in_place(table.body, members, wanted)
        found = Sheet(table, wanted, region, in_place, once, behind)
        for name in reversed(order):
            found.add(name)
        return found

    def copy(self) -> Sheet:
        """Return a sheet to go on with."""
        return Sheet(
            self.table,
            self.results,
            self.region,
            self.in_place,
            self.once,
            self.behind,
            dict(self.here),
            dict(self.moved),
            dict(self.indices),
            dict(self.inputs),
            set(self.members),
            set(self.turned),
            set(self.shifted),
            set(self.fed),
            self.bytes,
            self.work,
            self.again,
            self.instructions,
            self.written,
            self.repeated,
            self.numbers,
        )

    def add(self, name: str) -> None:
        """Take in what makes a result, or an input so far; all that reads it is there."""
        facts = self.table[name]
        elements, places = self.needed(name)
        if name in self.results:
            elements, places = max(elements, facts.elements), max(places, 1)
            self.indices[name] = self.indices.get(name, _NONE) | _OWN
        self.indices.setdefault(name, _NONE)  # of what others alone read, which have it too
        if name in self.once:
            elements = min(elements, facts.elements)
        self.members.add(name)
        self.bytes -= self.inputs.pop(name, 0)
        if name in self.results:
            self.bytes += self._written(name)
        if facts.has_work:
            self.work += elements * facts.weight
            self.instructions += 1
            self.written += places
            self.repeated += len(self.indices[name])
            if facts.is_dear:
                self.again += max(0, elements - facts.elements)
        self._ask(name, facts, elements, places)

    def cost(self) -> Cost:
        """Return what the kernel takes."""
        arrays = len(self.inputs) + len(self.results)
        counts = self.instructions, arrays, self.written, self.repeated
        folds = isinstance(self.region, _FOLDS)
        return Cost(
            self.bytes, self.work, self.again, *counts, self.in_place, folds, self._copied()
        )

    def _copied(self) -> tuple[int, ...]:
        """Return the bytes of each state of a loop whose next the kernel cannot write over it."""
        carried = self.table.body.carried
        if not carried:
            return ()
        kept = (name for name in self.results - self.in_place if name in carried)
        return tuple(
            self.table[name].bytes
            for name in kept
            if carried[name] in self.inputs and carried[name] in self.shifted
        )

    def needed(self, name: str) -> tuple[int, int]:
        """Return how many elements are computed, and at how many places in the text."""
        here, moved = self.here.get(name, (0, 0)), self.moved.get(name, (0, 0))
        return here[0] + moved[0], here[1] + moved[1]

    def _ask(self, name: str, facts: Facts, elements: int, places: int) -> None:
        """Note what `name` needs of its operands."""
        # A fold's form has each value of a row at hand, for the folds and for what follows.
        folds = isinstance(self.region, _FOLDS)
        at_hand = (facts.is_fold and folds) or (name in self.behind and not facts.is_fold)
        feeds = name in self.fed or (facts.is_fold and isinstance(self.region, Own))
        turns = facts.turns or name in self.turned
        free = self.table.body.free
        for number, ask in enumerate(facts.asks):
            operand = ask.operand
            if operand in free:
                continue
            if number == 0 and name in self.in_place:
                self.inputs.setdefault(operand, 0)
                continue
            asked = int(elements * ask.fan)
            if ask.moves and not (at_hand and (folds or operand in self.behind)):
                before = self.moved.get(operand, (0, 0))
                self.moved[operand] = before[0] + asked, before[1] + places
                indices = self._others(len(self.indices[name]))
            else:
                before = self.here.get(operand, (0, 0))
                self.here[operand] = max(before[0], asked), max(before[1], places)
                indices = self.indices[name]
            self.indices[operand] = self.indices.get(operand, _NONE) | indices
            if ask.moves or name in self.shifted or self.table[operand].elements != facts.elements:
                self.shifted.add(operand)
            if turns:
                self.turned.add(operand)
            if feeds:
                self.fed.add(operand)
            if operand not in self.members:
                read = self._read(operand)
                self.bytes += read - self.inputs.get(operand, 0)
                self.inputs[operand] = read

    def _others(self, count: int) -> frozenset[int]:
        """Return as many indices that are none so far, but no more than are too many."""
        first = self.numbers
        self.numbers += min(count, MOST_REPEATED + 1)
        return frozenset(range(first, self.numbers))

    def _read(self, name: str) -> int:
        facts = self.table[name]
        share = min(self.needed(name)[0], facts.elements) / max(1, facts.elements)
        across = name in self.turned and isinstance(self.region, _FOLDS)
        return int(facts.read * share) * (GRAIN if across else 1)

    def _written(self, name: str) -> int:
        if name not in self.in_place:
            return self.table[name].bytes
        instr = self.table.body[name]
        return self.table[instr.operands[1 if instr.opcode != "scatter" else -1]].bytes


def updated_in_place(body: Body, members: Set[str], results: Iterable[str]) -> frozenset[str]:
    """Return the results that update an array of others which no other member reads."""
    found = set()
    for name in results:
        if body[name].opcode in IN_PLACE and not any(
            source in body.free or (source in members and body[source].opcode not in VIEWS)
            for source in buffer_path(body, name)
        ):
            readers = [
                sum(user in members for user in body.users[source])
                for source in buffer_path(body, name)
            ]
            if max(readers) == 1:
                found.add(name)
    return frozenset(found)


def buffer_path(body: Body, name: str) -> list[str]:
    """Return what an update in place is an update of, views of it included."""
    path = [body[name].operands[0]]
    while body[path[-1]].opcode in VIEWS:
        path.append(body[path[-1]].operands[0])
    return path


def _computed_once(table: Table, order: Iterable[str], region: Region | None) -> frozenset[str]:
    """Return the folds, and what waits for one and is as small as its result.

    A loop does it all again for each element that needs it.
    """
    if region is None or isinstance(region, Loop):
        return frozenset()
    if not isinstance(region, _FOLDS):
        return frozenset(name for name in _waiting(table, order) if table[name].is_fold)
    folds = frozenset(region.reduces)  # shorter ones a thread does alone, each time
    waiting = _waiting(table, order, folds)
    return frozenset(
        name for name in waiting if name in folds or table[name].elements <= region.results
    )


def _waiting(
    table: Table, order: Iterable[str], folds: frozenset[str] | None = None
) -> frozenset[str]:
    """Return the folds, or those that are given, and what waits for one."""
    found: set[str] = set()
    for name in order:
        is_fold = table[name].is_fold if folds is None else name in folds
        if is_fold or not found.isdisjoint(table.body[name].operands):
            found.add(name)
    return frozenset(found)
