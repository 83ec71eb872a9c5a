"""Writes array operations into a draft, each result's shape found from its operands'.

Results lie as their operands do; what only moves an index is a view of the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlo2graph.hlo import (
    DTYPES,
    Attribute,
    DType,
    Instruction,
    Layout,
    PaddingDim,
    Shape,
    SliceDim,
)
from hlo2graph.hlo.dtype import S32
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.values import KEPT, add_filled, made

_PRED = DTYPES["pred"]


@dataclass(frozen=True, slots=True)
class Arrays:
    """Adds instructions that come of `like`."""

    draft: Draft
    like: Instruction

    def shape(self, name: str) -> Shape:
        """Return an array's shape."""
        return self.draft.shape(name)

    def add(self, opcode: str, shape: Shape, operands: Sequence[str], /, **attrs: Attribute) -> str:
        """Add an instruction and return its name."""
        return self.draft.add(self.like, opcode, shape, operands, attrs)

    def apply(self, opcode: str, *operands: str, to: DType | None = None) -> str:
        """Apply an elementwise operation, whose results may be of another type."""
        shape = self.shape(operands[-1])
        return self.add(opcode, replace(shape, dtype=to or shape.dtype), operands)

    def converted(self, name: str, dtype: DType) -> str:
        """Return an array as one of another type, or as it is where it is of that."""
        return name if self.shape(name).dtype is dtype else self.apply("convert", name, to=dtype)

    def compare(self, one: str, direction: str, other: str) -> str:
        """Compare two arrays."""
        shape = replace(self.shape(one), dtype=_PRED)
        return self.add("compare", shape, (one, other), direction=direction)

    def filled(self, shape: Shape, value: float) -> str:
        """Return an array whose elements are all `value`."""
        array = np.asarray(value).astype(shape.dtype.numpy)
        return add_filled(self.draft, self.like, shape, array)

    def like_filled(self, name: str, value: float) -> str:
        """Return an array like `name` whose elements are all `value`."""
        return self.filled(self.shape(name), value)

    def iota(self, shape: Shape, dim: int) -> str:
        """Return an array of each element's index along `dim`."""
        return self.add("iota", shape, (), iota_dimension=dim)

    def row_and_column(self, like: Shape) -> tuple[str, str]:
        """Return arrays of the row and of the column of each element of matrices."""
        numbers = replace(like, dtype=S32)
        return self.iota(numbers, like.rank - 2), self.iota(numbers, like.rank - 1)

    def broadcast(self, name: str, shape: Shape, dims: Sequence[int]) -> str:
        """Return `name`, whose dimension k is dimension dims[k], repeated along the others."""
        return self.add("broadcast", shape, (name,), dimensions=tuple(dims))

    def cut(self, name: str, dim: int, start: int, limit: int, stride: int = 1) -> str:
        """Return elements `start` to `limit` along `dim`."""
        shape = self.shape(name)
        if (start, limit, stride) == (0, shape.dims[dim], 1):
            return name
        taken = [SliceDim(0, n) for n in shape.dims]
        taken[dim] = SliceDim(start, limit, stride)
        kept = resized(shape, dim, -(-(limit - start) // stride))
        return self.add("slice", kept, (name,), slice=tuple(taken))

    def part(self, name: str, rows: tuple[int, int], columns: tuple[int, int]) -> str:
        """Return a part of a matrix, of the two last dimensions."""
        last = self.shape(name).rank - 1
        return self.cut(self.cut(name, last - 1, *rows), last, *columns)

    def join(self, parts: Sequence[str], dim: int) -> str:
        """Return arrays one after the other along `dim`."""
        shapes = [self.shape(p) for p in parts]
        whole = resized(shapes[0], dim, sum(s.dims[dim] for s in shapes))
        return self.add("concatenate", whole, parts, dimensions=(dim,))

    def extended(self, name: str, dim: int, size: int) -> str:
        """Return `name` with zeros behind it along `dim`, up to `size`."""
        shape = self.shape(name)
        zero = self.filled(Shape(shape.dtype), 0)
        return self.padded(name, dim, PaddingDim(0, size - shape.dims[dim]), zero)

    def padded(self, name: str, dim: int, edges: PaddingDim, value: str) -> str:
        """Return `name` with elements `value` around it along `dim`, or fewer of its own."""
        if edges == PaddingDim(0, 0):
            return name
        shape = self.shape(name)
        padding = [PaddingDim(0, 0) for _ in shape.dims]
        padding[dim] = edges
        size = shape.dims[dim] + edges.low + edges.high
        return self.add("pad", resized(shape, dim, size), (name, value), padding=tuple(padding))

    def parted(self, name: str, dim: int, parts: int) -> str:
        """Return a view with `dim` as two dimensions, the first one of `parts`."""
        shape = self.shape(name)
        dims = (*shape.dims[:dim], parts, shape.dims[dim] // parts, *shape.dims[dim + 1 :])
        order: list[int] = []
        for d in shape.minor_to_major:
            order += [d + 1, d] if d == dim else [d + (d > dim)]
        return self.add("reshape", laid_out(shape, dims, order), (name,))

    def merged(self, name: str, dim: int) -> str:
        """Return `name` with `dim` and the one behind it as one; a view where they lie so."""
        shape = self.shape(name)
        dims = (*shape.dims[:dim], shape.dims[dim] * shape.dims[dim + 1], *shape.dims[dim + 2 :])
        order = [d - (d > dim) for d in shape.minor_to_major if d != dim]
        return self.add("reshape", laid_out(shape, dims, order), (name,))

    def exchanged(self, name: str, one: int, other: int) -> str:
        """Return a view with two dimensions exchanged."""
        shape = self.shape(name)
        order = list(range(shape.rank))
        order[one], order[other] = other, one
        dims = tuple(shape.dims[d] for d in order)
        minor = [order[d] for d in shape.minor_to_major]
        return self.add("transpose", laid_out(shape, dims, minor), (name,), dimensions=tuple(order))

    def held(self, name: str) -> str:
        """Return an array that is in memory: not made again by each that reads it."""
        return self.add("opt-barrier", self.shape(name), (name,))

    def lying(self, name: str, wanted: Shape) -> str:
        """Return an array as it lies in memory in another shape, of the same dimensions."""
        same = self.shape(name).minor_to_major == wanted.minor_to_major
        return name if same else self.add("copy", wanted, (name,))

    def end(self, name: str) -> None:
        """Let `name`, an array like the original's, be the original."""
        draft, last, like = self.draft, self.draft[name], self.like
        assert isinstance(like.shape, Shape)
        if self.shape(name).minor_to_major != like.shape.minor_to_major:
            ended = replace(like, opcode="copy", operands=(name,), attrs={})
        else:
            ended = replace(last, name=like.name, shape=like.shape)
        kept = {name: like.attrs[name] for name in KEPT if name in like.attrs}
        draft.become(like.name, replace(ended, attrs={**ended.attrs, **kept}))
        draft.drop_if_dead(name)

    def end_with(self, names: Sequence[str]) -> None:
        """Let the original, a tuple, be of these arrays, each laid out as its own are."""
        leaves = self.like.shape.leaves()
        parts = [self.lying(name, leaf) for name, leaf in zip(names, leaves, strict=True)]
        self.draft.become(self.like.name, made(self.like, "tuple", parts))


def resized(shape: Shape, dim: int, size: int) -> Shape:
    """Return a shape with another size of one dimension."""
    return replace(shape, dims=(*shape.dims[:dim], size, *shape.dims[dim + 1 :]))


def laid_out(like: Shape, dims: Sequence[int], order: Sequence[int]) -> Shape:
    """Return an array of `dims`, most minor first as in `order`, written out only where needed."""
    row_major = list(order) == list(range(len(dims) - 1, -1, -1))
    return Shape(like.dtype, tuple(dims), None if row_major else Layout(tuple(order)))


def by_columns(shape: Shape) -> Shape:
    """Return a matrix that lies column by column."""
    last = shape.rank - 1
    return laid_out(shape, shape.dims, (last - 1, last, *reversed(range(last - 1))))
