"""Where the rows and the columns form look at the values of a region.

A `Place` is one element of all full-size values at once, or of all row-size ones. Whatever a
region's instruction has computed at a place stays known there, so that what waits for a reduce
finds what was computed for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

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


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some elements along some dimensions: the index of each, and what the first adds to a number.

    Elements are numbered as they lie in memory; those of a stretch follow each other, or lie so
    far from the first.
    """

    indices: list[dict[int, Expr]]
    offset: Expr
    distances: tuple[int, ...] = ()


def stretch_of(
    emit: ElementEmitter, region: Folding, dims: Sequence[int], run: Expr, count: int
) -> Stretch:
    """Return run number `run` of `count` elements along `dims`, in the order of the input.

    More than one only where they lie side by side: along the most minor dimension, or all `dims`
    that lie inside the others.
    """
    shape = region.space.shape
    order = [d for d in reversed(shape.minor_to_major) if d in dims and shape.dims[d] > 1]
    if not order:
        return Stretch([{}] * count, "0")
    inner = order[-1:]
    if count == 1 or shape.dims[inner[0]] % count:
        inner = order[-max(1, len(region.side_by_side(dims))) :]
    outer, sizes = order[: -len(inner)], [shape.dims[d] for d in inner]
    assert prod(sizes) % count == 0
    # In whole runs, so that the compiler sees that a run begins at a multiple of `count`.
    *places, at = emit.split(run, [*(shape.dims[d] for d in outer), prod(sizes) // count])
    first = emit.integer(f"{at} * {count}") if count > 1 and at != "0" else at
    found = []
    for k in range(count):
        element = emit.integer(f"{first} + {k}" if k else first)
        index = emit.split(element, sizes) if len(sizes) > 1 else (element,)
        found.append(dict(zip(order, (*places, *index), strict=True)))
    steps = [region.space.strides[d] for d in (*outer, inner[-1])]
    parts = [
        part if step == 1 else f"{part} * {step}{emit.places.wide}"
        for part, step in zip((*places, first), steps, strict=True)
    ]
    return Stretch(found, " + ".join(parts))


def patch_stretch(
    emit: ElementEmitter, region: Folding, dims: Sequence[int], run: Expr, patch: tuple[int, int]
) -> Stretch:
    """Return run number `run` of patches of so many rows and columns of images.

    The two last dimensions, rows and columns, are among `dims`.
    """
    shape, strides = region.space.shape, region.space.strides
    height, width = patch
    *outer, row, column = [d for d in dims if shape.dims[d] > 1]
    counts = shape.dims[row] // height, shape.dims[column] // width
    *places, group, side = emit.split(run, [*(shape.dims[d] for d in outer), *counts])
    top = emit.integer(f"{group} * {height}")
    left = emit.integer(f"{side} * {width}") if width > 1 else side
    rows = [emit.integer(f"{top} + {k}") if k else top for k in range(height)]
    columns = [emit.integer(f"{left} + {k}") if k else left for k in range(width)]
    found = [
        dict(zip((*outer, row, column), (*places, i, j), strict=True))
        for i in rows
        for j in columns
    ]
    parts = [
        f"{part} * {strides[d]}{emit.places.wide}"
        for part, d in zip((*places, top), (*outer, row), strict=True)
    ]
    far = tuple(i * strides[row] + j for i in range(height) for j in range(width))
    return Stretch(found, " + ".join((*parts, left)), far)
