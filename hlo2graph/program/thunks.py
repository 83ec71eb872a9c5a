"""Thunks: the steps of a compiled module, and the Program made of them.

Every thunk type is generic in what it refers to. `lower` and `place_copies` make thunks over
`Value`s, which have no address; after buffer assignment the same types refer to `Slice`s. There
is no further representation between these and the nodes of a CUDA graph.

    Sequence[R] = thunks, params, results, edges
    Thunk[R]    = Kernel | Library | Copy | Fill | Collective | While | Conditional
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from hlo2graph.errors import Span
from hlo2graph.hlo import Computation, Literal, Shape


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor leaf without an address; `origin` is the HLO instruction (and leaf) it came from."""

    id: int
    shape: Shape = field(compare=False)
    origin: str = field(compare=False)


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """The bytes [offset, offset + size) of an allocation."""

    allocation: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """The first byte behind it."""
        return self.offset + self.size

    def is_inside(self, other: Slice) -> bool:
        """All its bytes are among the other's."""
        return (
            self.allocation == other.allocation
            and other.offset <= self.offset
            and self.end <= other.end
        )

    def overlaps(self, other: Slice) -> bool:
        """Both have at least one byte in common."""
        return (
            self.allocation == other.allocation
            and self.offset < other.end
            and other.offset < self.end
        )

    def __str__(self) -> str:
        return f"{self.allocation}[{self.offset}:{self.end}]"


class Hazard(StrEnum):
    """Why one thunk waits for another."""

    RAW = "raw"  # reads what the other wrote
    WAR = "war"  # overwrites what the other read
    WAW = "waw"  # overwrites what the other wrote
    CONTROL = "control"  # control-predecessors
    EFFECT = "effect"  # both have side effects
    REUSE = "reuse"  # war or waw that only sharing bytes to save memory caused
    INPLACE = "inplace"  # war that only writing in place caused
    ORDER = "order"  # the serial schedule was asked for


@dataclass(frozen=True, slots=True)
class Edge:
    """Thunk `dst` waits for thunk `src` (positions in their sequence); `slice` are the bytes."""

    src: int
    dst: int
    hazard: Hazard
    slice: Slice | None = None  # None for control, effect and order


R = TypeVar("R", bound="Value | Slice")


@dataclass(frozen=True, slots=True)
class Kernel(Generic[R]):
    """Run `computation`: its k-th parameter is reads[k], its k-th result leaf writes[k]."""

    name: str
    computation: str
    reads: tuple[R, ...]
    writes: tuple[R, ...]
    after: tuple[str, ...] = ()  # control-predecessors: names of thunks in the same sequence
    effect: bool = False
    metadata: str = ""  # HLO metadata, verbatim
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Library(Generic[R]):
    """A vendor library's call for `computation`; `workspace` is scratch it writes."""

    name: str
    computation: str
    reads: tuple[R, ...]
    writes: tuple[R, ...]
    workspace: tuple[R, ...] = ()
    after: tuple[str, ...] = ()
    metadata: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Copy(Generic[R]):
    """Copy the bytes of `source` to `target`, both of one size."""

    name: str
    source: R
    target: R
    after: tuple[str, ...] = ()
    metadata: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Fill(Generic[R]):
    """Fill `target` with `pattern`, of 1, 2, 4, 8 or 16 bytes (one element)."""

    name: str
    pattern: bytes
    target: R
    after: tuple[str, ...] = ()
    metadata: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Collective(Generic[R]):
    """A collective, send, receive, infeed or outfeed; always an effect."""

    name: str
    computation: str
    reads: tuple[R, ...]
    writes: tuple[R, ...]
    after: tuple[str, ...] = ()
    metadata: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class While(Generic[R]):
    """Run `body` while `condition`'s only result is true.

    inits, results, body.params, body.results and condition.params all have one entry per leaf of
    loop state that the body changes; after place_copies the entries of one leaf can share a
    slice, and after buffer assignment they do. What the loop only reads is not state: nested
    sequences use values of the sequences around them.
    """

    name: str
    inits: tuple[R, ...]
    results: tuple[R, ...]
    condition: Sequence[R]
    body: Sequence[R]
    trip_count: int | None = None  # where known
    after: tuple[str, ...] = ()
    metadata: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Conditional(Generic[R]):
    """Run one branch; its results become `results`.

    A pred selector takes branch 0 where true, else branch 1; an s32 selector takes its branch, and
    the last one where it is out of range. Branches have no params: they use outer values.
    """

    name: str
    selector: R
    branches: tuple[Sequence[R], ...]
    results: tuple[R, ...]
    after: tuple[str, ...] = ()
    metadata: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sequence(Generic[R]):
    """Thunks in program order. Edges are there once the R are slices and build_edges has run."""

    thunks: tuple[Thunk[R], ...]
    params: tuple[R, ...] = ()
    results: tuple[R, ...] = ()
    edges: tuple[Edge, ...] = ()


Computing: TypeAlias = Kernel[R] | Library[R] | Collective[R]
"""What runs a computation."""

Thunk: TypeAlias = (
    Kernel[R] | Library[R] | Copy[R] | Fill[R] | Collective[R] | While[R] | Conditional[R]
)


@dataclass(frozen=True, slots=True)
class Port:
    """A leaf of the module's parameters or of its result: how users see it."""

    name: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Alias:
    """Result leaf `output` may, or must, live in the buffer of parameter leaf `input`."""

    output: int
    input: int
    must: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A module lowered to thunks.

    body.params are the parameter leaves in order, body.results the result leaves; `inputs` and
    `outputs` describe them. `constants` are values whose bytes are known. `computations` holds
    what kernels run, and everything those call.
    """

    name: str
    body: Sequence[Value]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    constants: tuple[tuple[Value, Literal], ...]
    computations: Mapping[str, Computation]
    aliases: tuple[Alias, ...] = ()
    is_scheduled: bool = False
