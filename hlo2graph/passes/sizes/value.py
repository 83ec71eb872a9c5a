"""What becomes of an instruction when its sizes are followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from hlo2graph.hlo import AnyShape, Shape, TupleShape

Place: TypeAlias = tuple[int, int]
"""A leaf of a value, and one of its dimensions."""

Pattern: TypeAlias = tuple[Place, ...]
"""Where a value has sizes, in order."""


class UnfollowedError(Exception):
    """Sizes cannot be followed through what is named."""


@dataclass(frozen=True, slots=True)
class Value:
    """An instruction of a whole shape, and the sizes of what it means.

    `sizes` has the name of an s32[] for each dimension that may be shorter than its bound; what
    lies behind it is anything. An `extended` tuple has further parts, of no concern here.
    """

    name: str
    shape: AnyShape
    sizes: Mapping[Place, str] = field(default_factory=lambda: MappingProxyType({}))
    extended: bool = False

    @property
    def pattern(self) -> Pattern:
        """Where there are sizes."""
        return tuple(sorted(self.sizes))

    @property
    def array(self) -> Shape:
        """The shape of an array."""
        assert isinstance(self.shape, Shape)
        return self.shape

    @property
    def along(self) -> dict[int, str]:
        """The sizes of an array, by dimension."""
        return {dim: size for (leaf, dim), size in self.sizes.items() if leaf == 0}

    def part(self, index: int) -> dict[Place, str]:
        """Return the sizes of one part of a tuple, as that part has them."""
        assert isinstance(self.shape, TupleShape)
        start = self.shape.starts[index]
        end = start + self.shape.parts[index].leaf_count
        return {
            (leaf - start, dim): size
            for (leaf, dim), size in self.sizes.items()
            if start <= leaf < end
        }


def whole(shape: AnyShape) -> AnyShape:
    """Return the shape that holds all that `shape` may."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(whole, shape.parts)))
    return replace(shape, dynamic=()) if shape.dynamic else shape


def on_each_leaf(shape: AnyShape, along: Mapping[int, str]) -> dict[Place, str]:
    """Return the same sizes for every leaf."""
    return {(leaf, dim): size for leaf in range(shape.leaf_count) for dim, size in along.items()}


def joined(values: Sequence[Value]) -> dict[Place, str]:
    """Return the sizes of a tuple of `values`."""
    sizes: dict[Place, str] = {}
    start = 0
    for value in values:
        sizes |= {(start + leaf, dim): size for (leaf, dim), size in value.sizes.items()}
        start += value.shape.leaf_count
    return sizes
