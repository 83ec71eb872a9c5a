"""Index arithmetic of a kernel: from an element's number to its index, from there to its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr, Index

_NAME = re.compile(r"\bi\d+\b")
_INDEX = re.compile(r" *const (?:int|long long) (i\d+) = ")


class _Integers(Protocol):
    index_type: str

    def integer(self, expression: str) -> Expr: ...


class Places:
    """Where elements lie in memory, as C++ integers; declares locals through the emitter."""

    def __init__(self, emitter: _Integers) -> None:
        self._integer = emitter.integer
        # Loop counters are of type int even where arrays are large: their products must not be.
        self.wide = "" if emitter.index_type == "int" else "ll"
        self._linear: dict[
            tuple[Index, tuple[int, ...]], Expr
        ] = {}  # as it lies, by index and size
        self._joined: dict[tuple[Expr, tuple[int, ...]], Index] = {}

    def offset(self, shape: Shape, index: Index) -> Expr:
        """Return where the element at `index` lies in memory, in elements."""
        known = self._linear.get(_as_it_lies(index, shape))
        if known is not None:
            return known
        terms, stride = [], 1
        for dim in shape.minor_to_major:
            if shape.dims[dim] > 1 and index[dim] != "0":
                terms.append(index[dim] if stride == 1 else f"{index[dim]} * {stride}{self.wide}")
            stride *= shape.dims[dim]
        return " + ".join(reversed(terms)) or "0"

    def element_at(self, linear: Expr, shape: Shape) -> Index:
        """Return the index of element number `linear` in memory; arrays laid out alike use it."""
        order = tuple(reversed(shape.minor_to_major))
        stored = self.split(linear, [shape.dims[d] for d in order])
        place = dict(zip(order, stored, strict=True))
        index = tuple(place[d] for d in range(shape.rank))
        if shape.elements > 1:  # else the index names no local of this scope
            self._linear[_as_it_lies(index, shape)] = linear
        return index

    def know(self, index: Index, shape: Shape, linear: Expr) -> None:
        """Take `linear` for the number in memory of the element at `index` of arrays like `shape`.

        The index names a local of its own, so that it stands for one element only.
        """
        self._linear[_as_it_lies(index, shape)] = linear

    def split(self, linear: Expr, dims: Sequence[int]) -> Index:
        """Return the row-major index of element number `linear` of an array of `dims`.

        A row-major array of those dimensions has the element at `linear` again.
        """
        index: list[Expr] = ["0"] * len(dims)
        stride, rest = 1, linear
        live = [d for d, n in enumerate(dims) if n != 1]
        if known := self._joined.get((linear, tuple(dims[d] for d in live))):
            for dim, part in zip(live, known, strict=True):
                index[dim] = part
            return tuple(index)
        for place, dim in enumerate(reversed(live)):
            over = linear if stride == 1 else f"{linear} / {stride}"
            last = place == len(live) - 1
            rest = over if last else f"{over} % {dims[dim]}"
            index[dim] = linear if rest == linear else self._integer(rest)
            stride *= dims[dim]
        if len(live) > 1:
            self._linear[tuple(index[d] for d in live), tuple(dims[d] for d in live[1:])] = linear
        return tuple(index)

    def joined(self, outer: Expr, count: int, inner: Expr, size: int) -> Expr:
        """Return the number of an element of an array of `count` times `size`, to be split again.

        Splitting it gives these very indices, so that neighbours are seen to be neighbours.
        """
        linear = self._integer(f"{outer} * {size} + {inner}")
        if min(count, size) > 1:
            self._joined[linear, (count, size)] = outer, inner
        return linear

    def needed(self, lines: Sequence[str]) -> list[str]:
        """Return the lines without the index locals that nothing uses."""
        found: list[str] = []
        used: set[str] = set()
        for line in reversed(lines):  # a local is declared before it is used
            declared = _INDEX.match(line)
            if declared and declared.group(1) not in used:
                continue
            used.update(_NAME.findall(line.partition(" = ")[2] if declared else line))
            found.append(line)
        return found[::-1]


def _as_it_lies(index: Index, shape: Shape) -> tuple[Index, tuple[int, ...]]:
    """Return the index in memory's order, and all sizes but the first: all there is to a place."""
    order = [d for d in reversed(shape.minor_to_major) if shape.dims[d] > 1]
    return tuple(index[d] for d in order), tuple(shape.dims[d] for d in order[1:])
