"""How a block moves the lower triangle of a matrix, by rows or by columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr

MOST_AT_ONCE = 20  # elements that a thread loads before it stores one

Load: TypeAlias = Callable[[Expr, Expr], Expr]
"""Returns the element of a row and a column."""
Put: TypeAlias = Callable[[Expr, Expr, Expr], None]
"""Writes what takes it there."""


@dataclass(frozen=True, slots=True)
class LowerTriangle:
    """That of `size` rows of numbers of the C++ type `kind`, and the `threads` of the block."""

    emit: ElementEmitter
    kind: str
    size: int
    threads: int

    def move(self, load: Load, put: Put, *, by_columns: bool) -> None:
        """Write how all of it is moved: many loads are under way at once.

        Neighbouring threads have neighbours of a row, or, where it is read by columns, of a column.
        """
        move = self._move_columns if by_columns else self._move_rows
        move(load, put)

    def _move_rows(self, load: Load, put: Put) -> None:
        emit, size = self.emit, self.size
        warps, strips = self.threads // WARP, -(-size // WARP)
        turns = [-(-(size - strip * WARP) // warps) for strip in range(strips)]
        emit.line("{")
        emit.line(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")

        def place(strip: int) -> tuple[Expr, Expr]:
            row = emit.integer(f"{strip * WARP} + warp + k * {warps}")
            return row, emit.integer(f"{strip * WARP} + lane")

        for group in _groups(turns):
            for strip in group:
                emit.line(f"{self.kind} some{strip}[{turns[strip]}];")
                emit.line("#pragma unroll")
                with emit.block(f"for (int k = 0; k < {turns[strip]}; ++k)"):
                    row, column = (
                        emit.integer(f"{at} < {size} ? {at} : {size - 1}") for at in place(strip)
                    )
                    emit.line(f"some{strip}[k] = {load(row, column)};")
            for strip in group:
                emit.line("#pragma unroll")
                with emit.block(f"for (int k = 0; k < {turns[strip]}; ++k)"):
                    row, column = place(strip)
                    with emit.block(f"if ({row} < {size} && {column} <= {row})"):
                        put(row, column, f"some{strip}[k]")
        emit.line("}")

    def _move_columns(self, load: Load, put: Put) -> None:
        """Take each column with one as far from the last: any two have as many elements."""
        emit, size, threads = self.emit, self.size, self.threads
        half = (size + 1) // 2
        width = 2 * half + 1
        count = half * width
        turns = -(-count // (threads * MOST_AT_ONCE))
        at_once = -(-count // (threads * turns))
        emit.line(f"for (int from = threadIdx.x; from < {count}; from += {at_once * threads}) {{")
        emit.line(f"{self.kind} some[{at_once}];")

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


def _groups(turns: Sequence[int]) -> list[list[int]]:
    """Return which strips of columns are loaded together."""
    found: list[list[int]] = []
    for strip, turn in enumerate(turns):
        if found and sum(turns[k] for k in found[-1]) + turn <= MOST_AT_ONCE:
            found[-1].append(strip)
        else:
            found.append([strip])
    return found
