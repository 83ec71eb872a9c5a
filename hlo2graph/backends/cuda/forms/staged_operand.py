"""How a chunk of a product's operand lies in shared memory, and who reads and writes it there."""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.backends.cuda.forms.product import Side
from hlo2graph.ops.device import Expr

FOUR = 4  # words of an access


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of the tile as a team holds it, row by row or step by step, in words of 4 bytes."""

    side: Side
    name: str
    words: int  # of a row's steps in a chunk
    per: int  # steps of a word
    team: int  # threads

    @property
    def stride(self) -> int:
        """Words from a row to the next, or from a step: a warp's accesses fall apart by banks."""
        return self.words + 4 if self.side.is_deep else self.side.tile + 8

    @property
    def size(self) -> int:
        """Words in all."""
        return self.stride * (self.side.tile if self.side.is_deep else self.words)

    @property
    def runs(self) -> int:
        """Accesses of four words that a thread makes for a chunk."""
        return self.side.tile * self.words // FOUR // self.team

    @property
    def elements(self) -> int:
        """Elements of an access."""
        return FOUR * self.per

    @property
    def abreast(self) -> int:
        """How many accesses are side by side: the team's threads then turn to the next."""
        return (self.words if self.side.is_deep else self.side.tile) // FOUR

    @property
    def turn(self) -> int:
        """How many rows, or words, further on a thread's next access is."""
        return self.team // self.abreast

    def place_of(self, row: Expr, word: Expr) -> Expr:
        """Return where a word of a row is, or four: the next words, or those of the next rows."""
        first, then = (row, word) if self.side.is_deep else (word, row)
        return f"({first}) * {self.stride} + {then}"
