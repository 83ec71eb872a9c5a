"""What can be wrong with a plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from hlo2graph.errors import Span


class Kind(StrEnum):
    """The property that does not hold."""

    UNORDERED = "unordered"  # two thunks touch the same bytes, and no path orders them
    REDUNDANT = "redundant"  # an edge that other edges imply
    BASELESS = "baseless"  # an edge between thunks that nothing orders
    UNWRITTEN = "unwritten"  # bytes are read that nothing has written
    PROTECTED = "protected"  # a constant, or a parameter that is not donated, is written
    OVERLAP = "overlap"  # one thunk's own slices lie over each other
    STATE = "state"  # a loop's state lies elsewhere at the end of a round
    BOUNDS = "bounds"  # a slice reaches past its allocation


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: `where` is the sequence it is in, `text` names the thunks and the bytes.

    `span` is what the thunk that comes last was made of, where text was read.
    """

    kind: Kind
    where: str
    text: str
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        place = f"in {self.where}: " if self.where else ""
        return f"{self.kind}: {place}{self.text}"
