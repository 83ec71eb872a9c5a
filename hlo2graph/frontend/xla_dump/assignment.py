"""XLA's `*buffer-assignment.txt`: allocations, and the bytes of every value.

Newer files hold the assignment alone; older ones go on with `Total bytes used` and `Used values:`,
which say nothing more. An allocation's line has words between size and kind that come and go with
XLA's version (`page 0`, `color 1`, an address): they are stepped over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo2graph.errors import ParseError, Source, Span
from hlo2graph.frontend.xla_dump.model import Leaf, XlaAllocation, XlaBuffers
from hlo2graph.program.thunks import Slice

KINDS = ("parameter", "constant", "thread-local", "preallocated-temp", "maybe-live-out")
LIVE_OUT = "maybe-live-out"

_ALLOCATION = re.compile(
    r"allocation (?P<index>\d{1,18}): (?:0x[0-9a-f]+, )?size (?P<size>\d{1,18})\b"
)
_VALUE = re.compile(
    r"value: <\d+ (?P<name>[^\s{}]+)(?P<index>\{[\d,]*\})?(?: \(phi\))? @-?\d+> "
    r"\(size=(?P<size>\d{1,18}),offset=(?P<offset>\d{1,18})\)"
)
_ENDS = ("Total bytes used", "Used values:", "HloLiveRange")


def parse_assignment(text: str, filename: str = "<string>") -> XlaBuffers:
    """Return what a buffer-assignment file says. Raises ParseError."""
    source = Source(filename, text)
    allocations: list[XlaAllocation] = []
    slices: dict[Leaf, Slice] = {}
    for at, line in _lines(text):
        span = Span(source, at, at + len(line))
        words = line.strip()
        if words.startswith(_ENDS):
            break
        if words.startswith("allocation "):
            allocations.append(_allocation(words, span))
        elif words.startswith("value: "):
            leaf, place = _value(words, allocations, span)
            slices[leaf] = place
    if not allocations:
        raise ParseError(
            "no allocations here: this is no buffer assignment of XLA's",
            Span(source, 0, 1),
        )
    return XlaBuffers(tuple(allocations), slices)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    at = 0
    for line in text.split("\n"):
        yield at, line
        at += len(line) + 1


def _allocation(words: str, span: Span) -> XlaAllocation:
    found = _ALLOCATION.match(words)
    if not found:
        raise ParseError("expected `allocation N: size BYTES, KIND`", span)
    said = words[found.end() :].rstrip(":").split(", ")
    kinds = [kind for kind in KINDS if any(word.split(" ")[0] == kind for word in said)]
    return XlaAllocation(int(found["index"]), int(found["size"]), kinds[0] if kinds else "")


def _value(words: str, allocations: list[XlaAllocation], span: Span) -> tuple[Leaf, Slice]:
    found = _VALUE.match(words)
    if not found:
        raise ParseError("expected `value: <N NAME @COLOR> (size=BYTES,offset=BYTES): SHAPE`", span)
    if not allocations:
        raise ParseError("a value before any allocation", span)
    inner = (found["index"] or "{}")[1:-1]
    index = tuple(int(part) for part in inner.split(",") if part)
    home = allocations[-1]
    place = Slice(home.index, int(found["offset"]), int(found["size"]))
    if place.end > home.size:
        raise ParseError(f"{found['name']} reaches past its allocation of {home.size} bytes", span)
    return (found["name"], index), place
