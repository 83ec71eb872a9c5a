"""Where the rows and the columns form look at the values of a region.

A `Place` is one element of all full-size values at once, or of all row-size ones. Whatever a
region's instruction has computed at a place stays known there, so that what waits for a reduce
finds what was computed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.region import Folding
from hlo2graph.ops.region_spaces import Space


class Place:
    """One element, by the index of its dimensions larger than 1, and, if known, its number.

    The number counts elements as the region's input lies in memory.
    """

    def __init__(
        self, emit: ElementEmitter, space: Space, live: Sequence[Expr], number: Expr | None
    ) -> None:
        """Take the index in logical order."""
        self._emit = emit
        self._space = space
        self._live = tuple(live)
        self._number = number
        self._known: dict[tuple[int, ...], Index] = {}

    def index(self, dims: tuple[int, ...]) -> Index:
        """Return the index of the element in a value of `dims`."""
        if dims not in self._known:
            self._known[dims] = self._found(dims)
        return self._known[dims]

    def _found(self, dims: tuple[int, ...]) -> Index:
        if self._space.is_plain(dims):
            live = iter(self._live)
            index = tuple("0" if n == 1 else next(live) for n in dims)
        else:
            assert self._number is not None
            index = self._emit.split(self._number, dims)
        if self._number is not None and any(n > 1 for n in dims):
            shape = self._space.shape
            if dims == shape.dims:
                self._emit.places.know(index, shape, self._number)
            elif shape.is_row_major:
                self._emit.places.know(index, Shape(shape.dtype, dims), self._number)
        return index


@dataclass(frozen=True, slots=True)
class Run:
    """Elements side by side; `inside` is the test that there are such, if there may be none."""

    places: tuple[Place, ...]
    inside: Expr | None


def indices(
    emit: ElementEmitter, region: Folding, dims: Sequence[int], run: Expr, count: int
) -> list[dict[int, Expr]]:
    """Return the index along `dims` of each element of run number `run` of `count` elements.

    Elements are counted as the input lies.
    """
    shape = region.space.shape
    order = [d for d in reversed(shape.minor_to_major) if d in dims and shape.dims[d] > 1]
    sizes = [shape.dims[d] for d in order]
    if not order or sizes[-1] % count:
        first = emit.integer(f"{run} * {count}") if count > 1 else run
        numbers = [emit.integer(f"{first} + {k}") if k else first for k in range(count)]
        return [dict(zip(order, emit.split(n, sizes), strict=True)) for n in numbers]
    # In whole runs, so that the compiler sees that a run begins at a multiple of `count`.
    index = dict(zip(order, emit.split(run, [*sizes[:-1], sizes[-1] // count]), strict=True))
    minor = index[order[-1]]
    first = emit.integer(f"{minor} * {count}") if count > 1 and minor != "0" else minor
    return [
        index | {order[-1]: emit.integer(f"{first} + {k}" if k else first)} for k in range(count)
    ]
