"""A matrix that a block factors in its shared memory (Square in include/factor.cuh)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr

MOST_AT_ONCE = 20  # elements that a thread loads before it stores one
_BLOCK, _SMALL_BLOCK = 32, 16  # what the rows are padded to
GAP_BYTES, _HALF = 16, 8  # at the end of a row; elements of more bytes have smaller blocks
_SMALL = 64  # rows, up to which fewer threads do


def fill_lower(
    emit: ElementEmitter,
    kind: str,
    size: int,
    threads: int,
    load: Callable[[Expr, Expr], Expr],
    put: Callable[[Expr, Expr, Expr], None],
    *,
    by_columns: bool,
) -> None:
    """Write how a block moves the lower triangle of `size` rows: many loads are under way at once.

    Neighbouring threads have neighbours of a row, or, where it is read by columns, of a column.

    load: returns the element of a row and a column, put: writes what takes it there.
    """
    if by_columns:
        _fill_by_columns(emit, kind, size, threads, load, put)
        return
    warps, strips = threads // WARP, -(-size // WARP)
    turns = [-(-(size - strip * WARP) // warps) for strip in range(strips)]
    emit.line("{")
    emit.line(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")
    for group in _groups(turns):
        for strip in group:
            emit.line(f"{kind} some{strip}[{turns[strip]}];")
            emit.line("#pragma unroll")
            with emit.block(f"for (int k = 0; k < {turns[strip]}; ++k)"):
                row = emit.integer(f"{strip * WARP} + warp + k * {warps}")
                column = emit.integer(f"{strip * WARP} + lane")
                inside = (emit.integer(f"{x} < {size} ? {x} : {size - 1}") for x in (row, column))
                emit.line(f"some{strip}[k] = {load(*inside)};")
        for strip in group:
            emit.line("#pragma unroll")
            with emit.block(f"for (int k = 0; k < {turns[strip]}; ++k)"):
                row = emit.integer(f"{strip * WARP} + warp + k * {warps}")
                column = emit.integer(f"{strip * WARP} + lane")
                with emit.block(f"if ({row} < {size} && {column} <= {row})"):
                    put(row, column, f"some{strip}[k]")
    emit.line("}")


def _groups(turns: Sequence[int]) -> list[list[int]]:
    """Return which strips of columns are loaded together."""
    found: list[list[int]] = []
    for strip, turn in enumerate(turns):
        if found and sum(turns[k] for k in found[-1]) + turn <= MOST_AT_ONCE:
            found[-1].append(strip)
        else:
            found.append([strip])
    return found


def _fill_by_columns(
    emit: ElementEmitter,
    kind: str,
    size: int,
    threads: int,
    load: Callable[[Expr, Expr], Expr],
    put: Callable[[Expr, Expr, Expr], None],
) -> None:
    """Fill it by columns.

    A column and one as far from the last as it is from the first have as many elements as any two.
    """
    half = (size + 1) // 2
    width = 2 * half + 1
    count = half * width
    turns = -(-count // (threads * MOST_AT_ONCE))
    at_once = -(-count // (threads * turns))
    emit.line(f"for (int from = threadIdx.x; from < {count}; from += {at_once * threads}) {{")
    emit.line(f"{kind} some[{at_once}];")

    def place() -> tuple[Expr, Expr, Expr]:
        number = emit.integer(f"from + k * {threads}")
        at = emit.integer(f"{number} < {count} ? {number} : {count - 1}")
        pair, along = emit.integer(f"{at} / {width}"), emit.integer(f"{at} % {width}")
        is_near = emit.integer(f"{along} <= {pair}")
        row = emit.integer(f"{is_near} ? {pair} : {2 * half - 1} - {pair}")
        column = emit.integer(f"{is_near} ? {along} : {along} - {pair} - 1")
        row, column = (emit.integer(f"{size - 1} - {at}") for at in (column, row))
        return number, row, column

    every = f"for (int k = 0; k < {at_once}; ++k)"
    inside = "{0} < 0 ? 0 : {0}"
    emit.line("#pragma unroll")
    with emit.block(every):
        _, row, column = place()
        if size % 2:  # the first row has none so far from the last
            row, column = (emit.integer(inside.format(at)) for at in (row, column))
        emit.line(f"some[k] = {load(row, column)};")
    emit.line("#pragma unroll")
    with emit.block(every):
        number, row, column = place()
        with emit.block(f"if ({number} < {count} && {column} >= 0)"):
            put(row, column, "some[k]")
    emit.line("}")


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

        fill_lower(emit, self.kind, self.size, self.threads, load, put, by_columns=by_columns)

    @property
    def factor(self) -> str:
        """A call, by all threads, that factors it."""
        return f"hlo::factor_block<{self.size}, {self.threads}>(a)"
