"""A matrix that a block factors in its shared memory (Square in include/factor.cuh)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.linalg.lower_triangle import LowerTriangle
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr

_BLOCK, _SMALL_BLOCK = 32, 16  # what the rows are padded to
GAP_BYTES, _HALF = 16, 8  # at the end of a row; elements of more bytes have smaller blocks
_SMALL = 64  # rows, up to which fewer threads do


@dataclass(frozen=True, slots=True)
class Square:
    """`size` rows of numbers of the C++ type `kind`.

    many: the device has other matrices for each multiprocessor, so that none of its warps may idle.
    """

    kind: str
    size: int
    element_bytes: int
    many: bool

    @property
    def threads(self) -> int:
        """Threads of a block."""
        few = 256 if self.size <= _SMALL else 512
        return WARP * self._blocks if self.many else few

    @property
    def bytes(self) -> int:
        """Of shared memory."""
        rows = self._blocks * self._block
        return rows * (rows * self.element_bytes + GAP_BYTES)

    @property
    def _blocks(self) -> int:
        return -(-self.size // self._block)

    @property
    def _block(self) -> int:
        is_small = self.size <= _SMALL_BLOCK or self.element_bytes > _HALF
        return _SMALL_BLOCK if is_small else _BLOCK

    def declare(self, emit: ElementEmitter) -> None:
        """Declare it as `a`, whose elements are `a.at[row][column]`."""
        emit.line(f"typedef hlo::Square<{self.kind}, {self.size}> Square;")
        emit.line("Square& a = *(Square*)hlo::dynamic_shared();")

    def fill(
        self, emit: ElementEmitter, load: Callable[[Expr, Expr], Expr], *, by_columns: bool
    ) -> None:
        """Fill its lower triangle with the elements that `load` returns, of a row and a column."""

        def put(row: Expr, column: Expr, value: Expr) -> None:
            emit.line(f"a.at[{row}][{column}] = {value};")

        triangle = LowerTriangle(emit, self.kind, self.size, self.threads)
        triangle.move(load, put, by_columns=by_columns)

    @property
    def factor(self) -> str:
        """A call, by all threads, that factors it."""
        return f"hlo::factor_block<{self.size}, {self.threads}>(a)"
