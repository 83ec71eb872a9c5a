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
        """Words from a row to the next, or from a step: threads' accesses fall apart by banks."""
        if not self.side.is_deep:
            return self.side.tile
        return self.words + (FOUR if self.per == 1 else 0)

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
        """Return where four words are: of a row from `word` on, or of a step from `row` on."""
        if self.side.is_deep:
            return f"({row}) * {self.stride} + {word}"
        turned = f"({word}) / {self.words // FOUR} * 2"
        return f"({word}) * {self.stride} + (({row}) / {FOUR} ^ ({turned})) * {FOUR}"

    def row_of(self, lane: str, k: str) -> Expr:
        """Return which row of its warp's is row k of those that a lane's group has."""
        return f"{lane} + 8 * ({k})" if self.side.is_deep else f"{lane} * {FOUR} + {k}"

    def word(self, row: Expr, word: Expr) -> Expr:
        """Return the word of a row that a thread has just read."""
        first, then = (row, word) if self.side.is_deep else (word, row)
        return f"four_{self.name}[{first}].x[{then}]"
