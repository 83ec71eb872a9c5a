"""How integers of a kernel's text go from lane to lane: the same, in steps, or at will."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import gcd

_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|[-+*/%()])(?:ll|u)?")
_COMPARISON = re.compile(r"(.*) (<|>=|<=|>) (-?\d+)(?:ll)?$")
NAME = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True, slots=True)
class LaneValue:
    """Lane k holds the first lane's value plus `step * k`; `multiple` divides the first lane's.

    Where `signed`, values may be negative, and divisions round to both sides. `column` is what the
    value has more than the column of the first lane's element, in lanes that lie in one row.
    """

    step: int
    multiple: int = 1
    signed: bool = True
    constant: int | None = None
    column: int | None = None


SAME = LaneValue(0)


class LaneNames:
    """What is known of the locals of a text for `lanes` lanes; None goes at will.

    Names not known here are the same in all lanes.
    """

    def __init__(self, lanes: int, first: str, step: int = 1, row: int = 0) -> None:
        """Begin with `first`, the number of the first lane's element; the others are steps on.

        Where the step is 1, `first` is a multiple of `lanes`. All lanes are taken to lie in one
        row of so many elements, if that is given, and on one side of the columns in `edges`.
        """
        self.lanes, self._first, self._row = lanes, first, row
        self.edges: set[int] = set()
        base = LaneValue(step, lanes if step == 1 else 1, signed=False)
        self._known: dict[str, LaneValue | None] = {first: base}

    def __getitem__(self, name: str) -> LaneValue | None:
        return self._known.get(name, SAME)

    def __setitem__(self, name: str, value: LaneValue | None) -> None:
        self._known[name] = value

    def differ(self, text: str, besides: Iterable[str] = ()) -> bool:
        """Tell whether a text names what differs between lanes, not counting some names."""
        return any(
            (value := self[name]) is None or value.step != 0
            for name in NAME.findall(text)
            if name in self._known and name not in besides
        )

    def evaluate(self, expression: str) -> LaneValue | None:
        """Return what an expression is lane by lane; None where it goes at will.

        What is no sum, product, quotient or remainder is the same where all names in it are.
        """
        tokens = _tokens(expression)
        if tokens is not None:
            parser = _Parser(iter(tokens), self)
            found = parser.sum()
            if not parser.failed and not parser.token:
                return found
        return None if self.differ(expression) else SAME

    def agree(self, head: str) -> bool:
        """Tell whether the head of an if, else or loop goes the same way in all lanes."""
        if not self.differ(head):
            return True
        if not head.startswith(("if (", "else if (")) or "||" in head:
            return False
        return all(map(self._test_agrees, head[head.index("(") + 1 : -1].split(" && ")))

    def in_row(self, name: str, sign: str, divisor: int | None) -> LaneValue | None:
        """Return the row of the first element, or the column, where no lane lies in another row."""
        if name != self._first or not self._row or not divisor or divisor % self._row:
            return None
        if sign == "/":
            return LaneValue(0, 1, signed=False)
        common = gcd(self.lanes, divisor)
        return LaneValue(1, common, signed=False, column=0 if divisor == self._row else None)

    def _test_agrees(self, test: str) -> bool:
        """Tell whether a comparison agrees: lanes in step, on one side of a multiple of them."""
        if not self.differ(test):
            return True
        compared = _COMPARISON.match(test)
        value = self.evaluate(compared[1]) if compared else None
        if compared is None or value is None:
            return False
        edge = int(compared[3]) + (compared[2] in ("<=", ">"))
        if value.step == 1 and value.column is not None:
            self.edges.add(edge - value.column)
            return True
        in_step = value.step == 1 and value.multiple % self.lanes == 0
        return value.step == 0 or (in_step and edge % self.lanes == 0)


def _tokens(expression: str) -> list[str] | None:
    found, at = [], 0
    while at < len(expression):
        token = _TOKEN.match(expression, at)
        if token is None:
            return None
        found.append(token[1])
        at = token.end()
    return found


class _Parser:
    """Sums of products of names, numbers, and sums in parentheses."""

    def __init__(self, tokens: Iterator[str], names: LaneNames) -> None:
        self._tokens, self._names = tokens, names
        self.failed = False
        self.token = next(tokens, "")

    def _take(self) -> str:
        taken, self.token = self.token, next(self._tokens, "")
        return taken

    def sum(self) -> LaneValue | None:
        found = self._product()
        while self.token in ("+", "-"):
            found = _added(found, self._take(), self._product())
        return found

    def _product(self) -> LaneValue | None:
        name = self.token
        found = self._atom()
        while self.token in ("*", "/", "%"):
            sign, right = self._take(), self._atom()
            if sign == "*":
                found = _multiplied(found, right)
            else:
                in_row = self._names.in_row(name, sign, right.constant if right else None)
                found = in_row or _divided(found, sign, right, self._names.lanes)
            name = ""
        return found

    def _atom(self) -> LaneValue | None:
        token = self._take()
        if token == "(":
            found = self.sum()
            self.failed |= self._take() != ")"
            return found
        if token == "-":
            return _added(LaneValue(0, 0), "-", self._atom())
        if token.isdigit():
            return LaneValue(0, int(token), signed=False, constant=int(token))
        self.failed |= not token or token in "+*/%)"
        return self._names[token]


def _added(a: LaneValue | None, sign: str, b: LaneValue | None) -> LaneValue | None:
    if a is None or b is None:
        return None
    step = a.step + b.step if sign == "+" else a.step - b.step
    signed, column = a.signed or b.signed or sign == "-", None
    if a.column is not None and b.constant is not None:
        column = a.column + b.constant if sign == "+" else a.column - b.constant
    return LaneValue(step, gcd(a.multiple, b.multiple), signed, column=column)


def _multiplied(a: LaneValue | None, b: LaneValue | None) -> LaneValue | None:
    if a is None or b is None:
        return None
    signed, multiple = a.signed or b.signed, a.multiple * b.multiple
    if a.step == b.step == 0:
        return LaneValue(0, multiple, signed)
    for value, scale in ((a, b), (b, a)):
        if scale.constant is not None:
            return LaneValue(value.step * scale.constant, multiple, signed)
    return None


def _divided(a: LaneValue | None, sign: str, b: LaneValue | None, lanes: int) -> LaneValue | None:
    if a is None or b is None or b.step:
        return None
    if a.step == 0:
        return LaneValue(0, 1, a.signed or b.signed)
    if a.step != 1 or a.signed or not b.constant:
        return None
    common = gcd(a.multiple, b.constant)
    if common % lanes:  # a multiple of the divisor may lie between two lanes
        return None
    return LaneValue(0, 1, signed=False) if sign == "/" else LaneValue(1, common, signed=False)
