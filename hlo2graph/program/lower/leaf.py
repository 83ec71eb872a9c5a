"""What an HLO value is while lowering: a flat tuple of leaves, whatever tuples it is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hlo2graph.hlo import AnyShape, Literal, Shape
from hlo2graph.program.thunks import Value


class Leaf(NamedTuple):
    """An array (or token) that an instruction gives.

    `shape` says how its bytes lie. It has a `value`, or it is the constant `literal` of the
    instruction `name`, or it is a token. A thunk that uses it also waits for the thunks `after`.
    """

    shape: Shape
    value: Value | None = None
    literal: Literal | None = None
    name: str = ""
    after: tuple[str, ...] = ()

    @property
    def is_token(self) -> bool:
        """It has no bytes; it only orders."""
        return self.shape.dtype.name == "token"

    @property
    def is_scalar_constant(self) -> bool:
        """A known constant of at most one element: kernels hold it in their text."""
        return self.literal is not None and self.shape.elements <= 1 and not self.literal.is_elided


Leaves = tuple[Leaf, ...]


def viewed(leaf: Leaf, shape: Shape) -> Leaf:
    """Return the same bytes under another shape."""
    literal = leaf.literal
    if literal is not None and literal.array is not None:
        flat = literal.array.reshape(-1).view(shape.dtype.numpy)
        literal = Literal(shape, flat.reshape(shape.dims))
    elif literal is not None:
        literal = Literal(shape, None, at=literal.at)
    return leaf._replace(shape=shape, literal=literal)


def leaf_names(name: str, shape: AnyShape) -> Iterator[str]:
    """Yield a name for each leaf: `name` for an array, else `name.0`, `name.1.0`, ..."""
    if isinstance(shape, Shape):
        yield name
    else:
        for i, part in enumerate(shape.parts):
            yield from leaf_names(f"{name}.{i}", part)
