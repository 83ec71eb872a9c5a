"""What XLA's dump files say, as data: thunks over slices, and how XLA grouped them into graphs.

A leaf is an array of the module, by the instruction (and place in its tuple) that makes it; the
names are those that buffer assignment uses, so that views of an array are the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from hlo2graph.program.thunks import Slice

Index: TypeAlias = tuple[int, ...]
Leaf: TypeAlias = tuple[str, Index]
"""An instruction's name and a place in its result, () where that is an array."""


class XlaKind(StrEnum):
    """What kind of thunk XLA makes, as far as its graphs care."""

    KERNEL = "kernel"
    LIBRARY = "library"
    COPY = "copy"
    SLICE = "dynamic-slice"  # a copy or call on a slice, in an executor of its own
    WHILE = "while"
    CONDITIONAL = "conditional"
    START = "async-start"  # what it holds stands in the graph in its place
    DONE = "async-done"  # has no node

    @property
    def holds_sequences(self) -> bool:
        """Nested thunks run as sequences of their own, and have edges of their own."""
        return self in (XlaKind.WHILE, XlaKind.CONDITIONAL)


@dataclass(frozen=True, slots=True)
class XlaThunk:
    """One step of XLA's program.

    reads, writes: slices as XLA counts them; what is nested counts for what holds it.
    unseen: slices that it reads and XLA does not count.
    takes, makes: the leaves that it needs, and those that come into being by it.
    state: leaves that it replaces because a loop keeps its state at one place.
    after: names that the schedule says it follows.
    inside: the sequences it holds, with their labels.
    captured: XLA can put it into a graph.
    graph: the computation that an older XLA put it into to be one graph, '' for none.
    """

    name: str
    kind: XlaKind
    reads: tuple[Slice, ...] = ()
    writes: tuple[Slice, ...] = ()
    unseen: tuple[Slice, ...] = ()
    takes: frozenset[Leaf] = frozenset()
    makes: frozenset[Leaf] = frozenset()
    state: frozenset[Leaf] = frozenset()
    after: tuple[str, ...] = ()
    inside: tuple[tuple[str, tuple[XlaThunk, ...]], ...] = ()
    captured: bool = True
    graph: str = ""


@dataclass(frozen=True, slots=True)
class XlaAllocation:
    """A block of memory as XLA assigned it; `kind` in XLA's words, without its number."""

    index: int
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class XlaBuffers:
    """XLA's buffer assignment: its allocations, and where each leaf lives."""

    allocations: tuple[XlaAllocation, ...]
    slices: Mapping[Leaf, Slice]

    @property
    def temp_bytes(self) -> int:
        """Bytes of temporaries, in all allocations of that kind."""
        return sum(a.size for a in self.allocations if a.kind == "preallocated-temp")


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of XLA's thunk sequence: `kind` in its spelling, nested lines by label."""

    kind: str
    inside: tuple[tuple[str, tuple[Printed, ...]], ...] = ()

    def under(self, label: str) -> tuple[Printed, ...]:
        """Return the lines of one nested sequence."""
        return next((lines for name, lines in self.inside if name == label), ())


def walk(thunks: tuple[XlaThunk, ...]) -> Iterator[XlaThunk]:
    """Yield every thunk, each followed by those nested in it."""
    for thunk in thunks:
        yield thunk
        for _, inner in thunk.inside:
            yield from walk(inner)
