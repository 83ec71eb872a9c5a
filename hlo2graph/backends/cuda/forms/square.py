"""A matrix that a block factors in its shared memory (Square in include/factor.cuh)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.ops.device import Expr

AT_ONCE = 16  # elements that a thread loads before it stores one
_BLOCK, _SMALL_BLOCK = 32, 16  # what the rows are padded to
_GAP_BYTES, _HALF = 16, 8  # at the end of a row; elements of more bytes have smaller blocks
_SMALL = 64  # rows, up to which fewer threads do


def fill_square(
    emit: ElementEmitter,
    kind: str,
    size: int,
    threads: int,
    load: Callable[[Expr], Expr],
    put: Callable[[Expr, Expr], None],
) -> None:
    """Write how a block moves `size` by `size` elements: many loads are under way at once.

    load: returns element number `at`, put: writes what takes it.
    """
    count = size * size
    emit.line(f"for (int from = threadIdx.x; from < {count}; from += {AT_ONCE * threads}) {{")
    emit.line(f"{kind} some[{AT_ONCE}];")
    every = f"for (int k = 0; k < {AT_ONCE}; ++k)"
    emit.line("#pragma unroll")
    with emit.block(every):
        number = emit.integer(f"from + k * {threads}")
        at = emit.integer(f"{number} < {count} ? {number} : {count - 1}")
        emit.line(f"some[k] = {load(at)};")
    emit.line("#pragma unroll")
    with emit.block(every):
        at = emit.integer(f"from + k * {threads}")
        with emit.block(f"if ({at} < {count})"):
            put(at, "some[k]")
    emit.line("}")


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
        is_small = self.size <= _SMALL_BLOCK or self.element_bytes > _HALF
        block = _SMALL_BLOCK if is_small else _BLOCK
        rows = -(-self.size // block) * block
        return rows * (rows * self.element_bytes + _GAP_BYTES)

    def declare(self, emit: ElementEmitter) -> None:
        """Declare it as `a`, whose elements are `a.at[row][column]`."""
        emit.line(f"typedef hlo::Square<{self.kind}, {self.size}> Square;")
        emit.line("Square& a = *(Square*)hlo::dynamic_shared();")

    def fill(
        self, emit: ElementEmitter, load: Callable[[Expr], Expr], put: Callable[[Expr, Expr], None]
    ) -> None:
        """Fill it as fill_square does, by threads of this many."""
        fill_square(emit, self.kind, self.size, self.threads, load, put)

    @property
    def factor(self) -> str:
        """A call, by all threads, that factors it."""
        return f"hlo::factor_block<{self.size}, {self.threads}>(a)"
