"""A matrix that a block factors in its shared memory (Square in include/factor.cuh)."""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter

_PANEL = 16  # what the rows are padded to
_GAP_BYTES = 16  # at the end of a row
_SMALL = 64  # rows, up to which fewer threads do


@dataclass(frozen=True, slots=True)
class Square:
    """`size` rows of numbers of the C++ type `kind`."""

    kind: str
    size: int
    element_bytes: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 256 if self.size <= _SMALL else 512

    @property
    def bytes(self) -> int:
        """Of shared memory."""
        rows = -(-self.size // _PANEL) * _PANEL
        return rows * (rows * self.element_bytes + _GAP_BYTES)

    def declare(self, emit: ElementEmitter) -> None:
        """Declare it as `a`, whose elements are `a.at[row][column]`."""
        emit.line(f"typedef hlo::Square<{self.kind}, {self.size}> Square;")
        emit.line("Square& a = *(Square*)hlo::dynamic_shared();")

    @property
    def factor(self) -> str:
        """A call, by all threads, that factors it."""
        return f"hlo::factor_block<{self.size}, {self.threads}>(a)"
