"""Code for one element made code for V elements: V lanes in one thread, side by side or apart.

Every statement that differs between lanes is written once a lane, one behind the other, so that
the compiler finds V loads, or V stores, at consecutive places and makes one access of them. What
is the same in all lanes stays as it is. A branch whose lanes agree stays one branch: the edge of a
concatenate or a pad at a multiple of V parts no lanes. The others are written once a lane.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from hlo2graph.backends.cuda.lane_values import NAME, LaneNames, LaneValue
from hlo2graph.backends.cuda.statements import Block, Node, chains, parsed, written

_DECLARATION = re.compile(
    r"(?:static )?(?P<const>const )?(?P<type>[\w:<>, ]*?[\w>]) (?P<name>\w+)(?:\[\w*\])? "
    r"= (?P<value>.*);$"
)
_ASSIGNMENT = re.compile(r"(?:if \(.*?\) )?(?P<name>\w+) [-+*/|&^]?= .*;$")
_STORE = re.compile(r"([rs]\d+)\[(.*?)\] = .*;$")
_LOAD = re.compile(r"hlo::load\((p\d+)\[([^\]]*)\]\)")
_NARROW_LOAD = re.compile(r"const float (\w+) = hlo::load\((p\d+\[[^\]]*\])\);$")
_NARROW_STORE = re.compile(r"(r\d+)\[(.*?)\] = (hlo::Store<hlo::(?:bf16|f16|f8\w+|f4\w+)>.*);$")
_READ = re.compile(
    r"const (?P<kind>[\w:]+) (?P<name>\w+) = (?P<load>hlo::load\()?"
    r"(?P<array>p\d+)\[(?P<place>[^\]]*)\]\)?;$"
)
_BRACKETED = re.compile(r"\[\((\w+ [-+] \d+)\)\]")
_INTEGERS = ("int", "long long")
LANE = "lane0"  # the number of a lane, in texts of its first


@dataclass(frozen=True, slots=True)
class Access:
    """A load or store. It merges where one access serves all lanes.

    It is askew where lanes lie side by side from anywhere on: words that hold all serve them.
    """

    array: str  # p0, r0, ..., or in shared memory
    merges: bool
    is_askew: bool = False


class _Line(NamedTuple):
    """A line as `lane` has it, where `inner` are locals of its own."""

    text: str
    lane: int = 0
    inner: Set[str] = frozenset()
    margin: str = ""


class Lanes:
    """The body of a kernel for `count` lanes: `lines`, and the `accesses` they make.

    Lane k computes element `first + step * k`. Where the step is 1, `first` is `whole * count`.
    """

    def __init__(
        self,
        body: Sequence[str],
        first: str,
        count: int,
        step: int = 1,
        whole: str = "thread",
        mark: str = "_",
        row: int = 0,
    ) -> None:
        """Take the lines for the element of number `first`.

        mark: what parts a name from its lane's number, for lines that have lanes already.
        row: of how many elements a row has, in which all lanes are then taken to lie, and on one
        side of the columns in `edges`; what they read side by side is read by whole words.
        """
        self.accesses: list[Access] = []
        self._count = count
        self._by_thread = re.compile(rf"\b{first} ([/%]) (\d+)\b")
        self._step, self._whole, self._mark, self._row = step, whole, mark, row
        self._mutable: set[str] = set()  # variables that differ after some assignment
        self._margin = body[0][: -len(body[0].lstrip())]
        nodes = tuple(parsed(iter([line.strip() for line in body])))
        known = -1
        while known != len(self._mutable):  # what a loop assigns differs from its start on
            known = len(self._mutable)
            self._names = LaneNames(count, first, step, row)
            self._names[LANE] = LaneValue(1, count, signed=False)
            self.accesses.clear()
            self._found = list(self._several(nodes))

    @property
    def edges(self) -> set[int]:
        """Columns that no two lanes may lie on different sides of."""
        return self._names.edges

    @cached_property
    def lines(self) -> list[str]:
        """What is written in the place of the body; most takers want to know `accesses` alone."""
        return [self._margin + line.margin + self._of_lane(*line[:3]) for line in self._found]

    def _several(self, nodes: Sequence[Node]) -> Iterator[_Line]:
        for chain in chains(nodes):
            if isinstance(chain[0], str):
                yield from self._statement(chain[0])
            else:
                yield from self._chain([b for b in chain if isinstance(b, Block)])

    def _statement(self, text: str) -> Iterator[_Line]:
        self._note_accesses(text)
        if self._row and (read := _READ.match(text)) and self._is_askew(read["place"]):
            yield from self._words(read)
            return
        if declared := _DECLARATION.match(text):
            yield from self._declaration(text, declared)
            return
        differs = self._names.differ(text)
        if differs and (assigned := _ASSIGNMENT.match(text)):
            self._mutable.add(assigned["name"])
        else:
            assert not differs or _STORE.match(text), text
        yield from self._each(text) if differs else [_Line(text)]

    def _declaration(self, text: str, declared: re.Match[str]) -> Iterator[_Line]:
        name, value = declared["name"], self._names.evaluate(declared["value"])
        if declared["type"] not in _INTEGERS and value is not None and value.step:
            value = None  # of a type that may wrap or round
        if not declared["const"] and (value is None or value.step):
            self._mutable.add(name)
        if name in self._mutable:
            value = None
        self._names[name] = value
        if value is None:
            yield from self._each(text)
        else:
            yield _Line(self._by_thread.sub(self._shared, text))

    def _shared(self, match: re.Match[str]) -> str:
        """Count in whole threads: the compiler then knows that a remainder is a multiple of V."""
        sign, divisor, count = match[1], int(match[2]), self._count
        if divisor % count or self._step != 1:
            return match[0]
        return f"{self._whole} {sign} {divisor // count}" + (f" * {count}" if sign == "%" else "")

    def _chain(self, chain: Sequence[Block]) -> Iterator[_Line]:
        """Write an if with its elses, or a loop: once where the lanes agree on every head."""
        if all(self._names.agree(block.head) for block in chain):
            for number, block in enumerate(chain):
                yield _Line(f"{block.head} {{".lstrip())
                for text, lane, inner, margin in self._several(block.body):
                    yield _Line(text, lane, inner, f"  {margin}")
                if len(chain) > 1:
                    yield _Line(f"  hlo::branch_end<{number}>();")
                yield _Line("}")
            return
        lines = [line for block in chain for line in written(block)]
        own = {m["name"] for line in lines if (m := _DECLARATION.match(line.lstrip()))}
        for line in lines:
            assigned = _ASSIGNMENT.match(line.lstrip())
            if assigned and assigned["name"] not in own:
                self._mutable.add(assigned["name"])
            self.accesses += [Access(array, merges=False) for array, _ in _LOAD.findall(line)]
        for lane in range(self._count):
            yield from (_Line(line, lane, own) for line in lines)

    def _each(self, text: str) -> Iterator[_Line]:
        for part in self._parts(text):
            yield from (_Line(part, lane) for lane in range(self._count))

    def _parts(self, text: str) -> tuple[str, ...]:
        """Part the access of a narrow float from its conversion, which would part the lanes'."""
        if loaded := _NARROW_LOAD.match(text):
            name, place = loaded.groups()
            self._names[f"{name}_raw"] = None
            return (
                f"const auto {name}_raw = {place};",
                f"const float {name} = hlo::load({name}_raw);",
            )
        if stored := _NARROW_STORE.match(text):
            result, place, value = stored.groups()
            self._names[f"{result}_raw"] = None
            return f"const auto {result}_raw = {value};", f"{result}[{place}] = {result}_raw;"
        return (text,)

    def _words(self, read: re.Match[str]) -> Iterator[_Line]:
        """Read the words that hold all lanes' elements, then take each lane's out of them."""
        kind, name, load, array, place = read.group("kind", "name", "load", "array", "place")
        yield _Line(f"const auto {name}_run = hlo::run_at<{self._count}>({array}, {place});")
        self._names[name] = self._names[f"{name}_raw"] = None
        yield from self._each(f"const auto {name}_raw = {name}_run.at({LANE});")
        yield from self._each(f"const {kind} {name} = {load or ''}{name}_raw{')' if load else ''};")

    def _is_askew(self, place: str) -> bool:
        value = self._names.evaluate(place)
        return value is not None and value.step == 1 and value.multiple % self._count != 0

    def _of_lane(self, text: str, lane: int, inner: Set[str]) -> str:

        def replaced(match: re.Match[str]) -> str:
            name = match[0]
            if name in inner:
                return name
            value = self._names[name]
            if value is None:
                return f"{name}{self._mark}{lane}"
            far = value.step * lane
            return f"({name} {'-' if far < 0 else '+'} {abs(far)})" if far else name

        return _BRACKETED.sub(r"[\1]", NAME.sub(replaced, text)) if lane else text

    def _note_accesses(self, text: str) -> None:
        found = _LOAD.findall(text)
        if stored := _STORE.match(text):
            found.append(stored.groups())
        for array, place in found:
            value = self._names.evaluate(place)
            merges = value is not None and (
                value.step == 0 or (value.step == 1 and value.multiple % self._count == 0)
            )
            self.accesses.append(Access(array, merges, self._is_askew(place)))
