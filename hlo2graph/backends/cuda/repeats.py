"""Loops whose results repeat: a thread computes a word once, and stores it at several places.

A broadcast's elements are the same ones over and over. What is found of an element's number is then
a remainder: the elements of equal remainders by their least common multiple, the period, are equal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

TIMES = 8  # that a thread stores what it has computed
MOST = 2**31 - 1  # elements, so that numbers of 32 bits count them, and those just behind
_REMAINDER = re.compile(r"(?:\(first \+ \d+\)|\b(first|thread))(?: / (\d+))? % (\d+)")
_STORE = re.compile(r" *(?:\(\(hlo::u\d+\*\)\(r\d+ \+ first\)\)|r\d+)\[[^\]]*\] = [^;]*;$")
_PLACE = re.compile(r"\bfirst\b")
_NUMBER = re.compile(r"\b(?:first|thread)\b")


@dataclass(frozen=True, slots=True)
class Repeats:
    """The lines that compute lanes' elements, those that store them at `to`, and the period.

    The period is counted in words of all lanes.
    """

    made: tuple[str, ...]
    stored: tuple[str, ...]
    period: int


def repeats_of(lines: Sequence[str], lanes: int, count: int) -> Repeats | None:
    """Return the parts of the body of `lanes` elements, of `count`, if these repeat often."""
    begin = next((k for k, line in enumerate(lines) if _STORE.match(line)), len(lines))
    made, stored = lines[:begin], lines[begin:]
    text = "\n".join(made)
    if not stored or not all(map(_STORE.match, stored)) or _NUMBER.search(_REMAINDER.sub("", text)):
        return None
    period = lanes
    for number, divisor, size in _REMAINDER.findall(text):
        each = lanes if number == "thread" else 1
        period = lcm(period, int(divisor or 1) * int(size) * each)
    if count // period < 2 * TIMES or count + TIMES * period > MOST:
        return None
    return Repeats(tuple(made), tuple(_PLACE.sub("to", s) for s in stored), period // lanes)
