"""Array and tuple shapes. `str()` is HLO text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from math import prod
from typing import TypeAlias

from hlo2graph.hlo.dtype import DType

UNBOUNDED = -1  # a dimension written `?`


@dataclass(frozen=True, slots=True)
class Layout:
    """Dimension order, most minor first; `suffix` is what follows the colon, kept as text.

    The suffix holds tiles `T(8,128)`, memory space `S(1)`, element size `E(4)` and the like. It
    does not change where an element lies in our buffers.
    """

    minor_to_major: tuple[int, ...]
    suffix: str = ""

    def __str__(self) -> str:
        tail = f":{self.suffix}" if self.suffix else ""
        return "{" + ",".join(map(str, self.minor_to_major)) + tail + "}"


@dataclass(frozen=True, slots=True)
class Shape:
    """An array's element type, dimensions and, where written, layout.

    `dynamic` names the dimensions written `<=N`; `dims` then holds the bound. A buffer, written
    `b(f32[4])`, is an array whose place in memory is a value too.
    """

    dtype: DType
    dims: tuple[int, ...] = ()
    layout: Layout | None = None
    dynamic: tuple[int, ...] = ()
    is_buffer: bool = False
    elements: int = field(init=False, compare=False, repr=False, default=0)  # in the whole array
    size: int = field(init=False, compare=False, repr=False, default=0)  # bytes in memory

    def __post_init__(self) -> None:
        count = prod(self.dims)
        object.__setattr__(self, "elements", count)
        object.__setattr__(self, "size", count * self.dtype.size)

    def __str__(self) -> str:
        array = f"{self._array()}{self.layout or ''}"
        return f"b({array})" if self.is_buffer else array

    def without_layout_text(self) -> str:
        """Return the shape as text, layout left out, as computation signatures have it."""
        return f"b({self._array()})" if self.is_buffer else self._array()

    def _array(self) -> str:
        if self.dtype.name == "token":
            return "token[]"
        dims = (
            "?" if n == UNBOUNDED else f"<={n}" if i in self.dynamic else str(n)
            for i, n in enumerate(self.dims)
        )
        return f"{self.dtype}[{','.join(dims)}]"

    @property
    def leaf_count(self) -> int:
        """Number of array shapes inside: one."""
        return 1

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def minor_to_major(self) -> tuple[int, ...]:
        """The dimension order, row-major where none is written."""
        return (
            self.layout.minor_to_major if self.layout else tuple(range(len(self.dims) - 1, -1, -1))
        )

    @property
    def is_row_major(self) -> bool:
        """The last dimension is the most minor, and so on."""
        order = self.minor_to_major
        return all(a > b for a, b in pairwise(order))

    def compatible(self, other: AnyShape) -> bool:
        """Same element type and dimensions, of which one without a bound is any."""
        return (
            isinstance(other, Shape)
            and self.dtype is other.dtype
            and (self.dims == other.dims or _fit(self.dims, other.dims))
            and self.is_buffer is other.is_buffer
        )

    def leaves(self) -> Iterator[Shape]:
        """Yield the array shapes inside, in order: here just this one."""
        yield self

    def with_layout(self, layout: Layout | None) -> Shape:
        """Return the same shape laid out as `layout` says."""
        return replace(self, layout=layout)


def _fit(dims: tuple[int, ...], others: tuple[int, ...]) -> bool:
    pairs = zip(dims, others, strict=False)
    return len(dims) == len(others) and all(a == b or UNBOUNDED in (a, b) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class TupleShape:
    """A tuple of shapes. `starts` has the number of the first leaf of each part."""

    parts: tuple[AnyShape, ...]
    starts: tuple[int, ...] = field(init=False, compare=False, repr=False, default=())
    leaf_count: int = field(init=False, compare=False, repr=False, default=0)
    depth: int = field(init=False, compare=False, repr=False, default=1)  # of tuples in tuples

    def __post_init__(self) -> None:
        ends = tuple(accumulate(part.leaf_count for part in self.parts))
        tuples = (part for part in self.parts if isinstance(part, TupleShape))
        object.__setattr__(self, "starts", (0, *ends[:-1]))
        object.__setattr__(self, "leaf_count", ends[-1] if ends else 0)
        object.__setattr__(self, "depth", 1 + max((part.depth for part in tuples), default=0))

    def __str__(self) -> str:
        return _joined([str(p) for p in self.parts])

    def without_layout_text(self) -> str:
        """Return the shape as text, layouts left out."""
        return _joined([p.without_layout_text() for p in self.parts])

    @property
    def size(self) -> int:
        """Bytes of all leaves together."""
        return sum(leaf.size for leaf in self.leaves())

    def compatible(self, other: AnyShape) -> bool:
        """Same structure and compatible leaves."""
        return (
            isinstance(other, TupleShape)
            and len(self.parts) == len(other.parts)
            and all(a.compatible(b) for a, b in zip(self.parts, other.parts, strict=True))
        )

    def leaves(self) -> Iterator[Shape]:
        """Yield the array shapes inside, in order."""
        for part in self.parts:
            yield from part.leaves()


AnyShape: TypeAlias = Shape | TupleShape


def _joined(parts: list[str]) -> str:
    """Join with XLA's `/*index=N*/` mark before each fifth element."""
    marked = [f"/*index={i}*/{p}" if i and i % 5 == 0 else p for i, p in enumerate(parts)]
    return f"({', '.join(marked)})"
