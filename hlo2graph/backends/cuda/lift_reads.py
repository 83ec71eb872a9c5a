"""What several guarded blocks of a kernel's body read alike, read once before the first of them.

Where a window reaches over a border, each of its taps is computed under a guard, and what its
channel is scaled by is read in every one: nine times for a window of three by three. A read may
leave its guards where these ask for other coordinates than those that it names: if it is within its
array for some of them, it is for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TypeAlias

from hlo2graph.backends.cuda.lane_values import NAME
from hlo2graph.backends.cuda.statements import Block, Node, chains, parsed, written

_INTEGER = re.compile(r"const (?:int|long long) (?P<name>\w+) = (?P<value>.*);$")
_READ = re.compile(
    r"const (?P<kind>[\w:]+) (?P<name>\w+) = "
    r"(?P<load>(?:hlo::load\()?p\d+\[(?P<place>[^\]]*)\]\)?);$"
)

_Read: TypeAlias = tuple[str, str]  # its type and text
_Use: TypeAlias = tuple[int, str]  # the guard's number and the local that holds it there
_Digits: TypeAlias = frozenset[tuple[float, float]]
"""Which digits of an element's number a value is made of: each counts from one unit to another."""


def lifted(body: Sequence[str], first: str) -> list[str]:
    """Return the lines of the element of number `first` with such reads before their guards."""
    margin = body[0][: -len(body[0].lstrip())]
    known: dict[str, _Digits] = {first: frozenset({(1, inf)})}
    found: dict[_Read, list[_Use]] = {}
    nodes = chains(list(parsed(iter([line.strip() for line in body]))))
    for at, (node, *others) in enumerate(nodes):
        if isinstance(node, Block):
            for read in () if others else _guarded(node, known, frozenset()):
                found.setdefault((read["kind"], read["load"]), []).append((at, read["name"]))
        elif declared := _INTEGER.match(node):
            digits = _digits(declared["value"], first, known)
            if digits is not None:
                known[declared["name"]] = digits
    repeated = {read: uses for read, uses in found.items() if uses[0][0] != uses[-1][0]}
    return [margin + line for line in _rewritten(nodes, repeated)]


def _guarded(block: Block, known: Mapping[str, _Digits], asked: _Digits) -> Iterator[re.Match[str]]:
    """Yield the reads in a block that no guard around them asks anything of."""
    here = _named(block.head.removeprefix("if "), known) if block.head.startswith("if ") else None
    if here is None:
        return
    asked |= here
    for node in block.body:
        if isinstance(node, Block):
            yield from _guarded(node, known, asked)
        elif read := _READ.match(node):
            digits = _named(read["place"], known)
            if digits is not None and _are_apart(asked, digits):
                yield read


def _digits(value: str, first: str, known: Mapping[str, _Digits]) -> _Digits | None:
    """Return what an integer is made of, None if of other things too."""
    digit = re.fullmatch(rf"{first}(?: / (\d+))?(?: % (\d+))?(?: \* \d+)?", value)
    if digit is None:
        return _named(value, known)
    low = int(digit[1] or 1)
    return frozenset({(low, low * int(digit[2]) if digit[2] else inf)})


def _named(text: str, known: Mapping[str, _Digits]) -> _Digits | None:
    """Return what the integers in a text are made of, None if one of them is not known."""
    found: _Digits = frozenset()
    for name in NAME.findall(text):
        if name not in known:
            return None
        found |= known[name]
    return found


def _are_apart(some: _Digits, others: _Digits) -> bool:
    return all(a[1] <= b[0] or b[1] <= a[0] for a in some for b in others)


def _rewritten(
    nodes: Sequence[Sequence[Node]], repeated: Mapping[_Read, Sequence[_Use]]
) -> Iterator[str]:
    """Yield the body's lines with each of these reads where the first guard begins that has it."""
    for at, chain in enumerate(nodes):
        kept: dict[str, str] = {}  # what stands for a local of this guard
        for (kind, load), uses in repeated.items():
            first, name = uses[0]
            if first == at:
                yield f"const {kind} {name} = {load};"
            kept |= {local: name for guard, local in uses if guard == at}
        for line in (line for node in chain for line in written(node)):
            read = _READ.match(line.lstrip())
            if read is None or read["name"] not in kept:
                yield _renamed(line, kept)


def _renamed(line: str, names: Mapping[str, str]) -> str:
    return NAME.sub(lambda name: names.get(name[0], name[0]), line) if names else line
