"""How a chunk of a product's operand lies in shared memory, and who reads and writes it there."""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.backends.cuda.forms.products.product import Side
from hlo2graph.ops.device import Expr

FOUR = 4  # words of an access
CHUNK = 32  # words of the steps that a team takes at once


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of the tile as a team holds it, row by row or step by step, in words of 4 bytes.

    A word is `per` steps of a row where rows are kept, and as many rows of a step where steps are.
    """

    side: Side
    name: str
    per: int
    team: int  # threads
    steps: int  # of a chunk

    @property
    def words(self) -> int:
        """Words of a row's steps in a chunk, or of a step's rows."""
        return (self.steps if self.side.is_deep else self.side.tile) // self.per

    @property
    def stride(self) -> int:
        """Words from a row to the next, or from a step: a warp's accesses fall apart by banks."""
        return self.words + (4 if self.comes_whole else 8)

    @property
    def size(self) -> int:
        """Words in all."""
        return self.stride * self.runs * self.turn

    @property
    def runs(self) -> int:
        """Accesses of four words that a thread makes for a chunk."""
        return -(-(self.side.tile if self.side.is_deep else self.steps) // self.turn)

    @property
    def elements(self) -> int:
        """Elements of an access."""
        return FOUR * self.per

    @property
    def abreast(self) -> int:
        """How many accesses are side by side: the team's threads then turn to the next."""
        return self.words // FOUR

    @property
    def turn(self) -> int:
        """How many rows, or steps, further on a thread's next access is."""
        return self.team // self.abreast

    @property
    def comes_whole(self) -> bool:
        """Whether a warp reads eight by eight words, or pairs, at once, turned where need be."""
        return self.side.is_deep or self.per > 1

    def place_of(self, across: Expr, word: Expr) -> Expr:
        """Return where a word of a row, or of a step, is."""
        return f"({across}) * {self.stride} + {word}"

    def of_warp(self, span: Expr, first: Expr, turns: bool) -> Expr:
        """Return what a thread of a warp shows of four pieces from row `span` and step `first` on.

        They are 16 rows by all steps of a product: the rows' second half comes before the steps',
        or behind it where it `turns`, as tensor cores take left and right matrices.
        """
        halves = ("lane / 8 % 2", "lane / 16")
        row, step = halves[::-1] if turns else halves
        if self.side.is_deep:
            return self.place_of(
                f"{span} + {row} * 8 + lane % 8", f"({first}) / {self.per} + {step} * 4"
            )
        steps = f"{first} + {step} * 8 + lane % 8"
        return self.place_of(steps, f"({span} + {row} * 8) / {self.per}")
