"""Threads that compute one result together: how a block is divided, how their parts are folded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.ctypes import compute_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import SHARED_BYTES
from hlo2graph.hlo import DType
from hlo2graph.ops.device import Expr

WARP = 32
FEW_BLOCKS = 256  # about two a multiprocessor: with fewer, a row is given more threads
WIDE_TEAM = 256
WIDEST_TEAM = 512
LONG = 4096  # steps from which a row takes the widest team
UNROLL = 4  # steps whose loads are under way at once

Fold = Callable[[list[Expr], list[Expr]], None]


@dataclass(frozen=True, slots=True)
class Team:
    """`lanes` results a block, `slices` threads for each: powers of two.

    In rows, a result's threads stand side by side, so that they read what lies side by side; else
    they stand `lanes` apart, and neighbours work on neighbouring results.
    """

    lanes: int
    slices: int
    rows: bool

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.slices

    @staticmethod
    def for_rows(results: int, steps: int) -> Team:
        """Return a team for rows of `steps`: a warp each, more where rows are long or few."""
        most = WARP
        if steps >= LONG:
            most = WIDEST_TEAM
        elif steps >= 1024 or (steps >= 128 and results * WARP < FEW_BLOCKS * WIDE_TEAM // 8):
            most = WIDE_TEAM
        slices = min(most, 1 << (steps.bit_length() - 1))
        return Team(max(1, WIDE_TEAM // slices), slices, rows=True)

    @staticmethod
    def for_columns(results: int, steps: int) -> Team:
        """Return a team for columns: more slices where there are too few columns for all."""
        lanes, slices = WARP, 8
        while results < lanes * FEW_BLOCKS and lanes * slices < 1024 and slices * 4 <= steps:
            slices *= 2
        while results <= lanes // 2:
            lanes //= 2
        return Team(lanes, min(slices, 1 << (steps.bit_length() - 1)), rows=False)

    def holding(self, bytes_each: int) -> Team:
        """Return the team, with fewer slices if so much a thread exceeds shared memory."""
        slices = self.slices
        while slices > self._lowest and self.lanes * slices * bytes_each > SHARED_BYTES:
            slices //= 2
        return replace(self, slices=slices)

    @property
    def _lowest(self) -> int:
        """Slices down to which partial values are folded through shared memory."""
        return WARP if self.rows else 1

    def place(self, emit: ElementEmitter) -> None:
        """Declare `lane`, `slice` and the number of the `result`."""
        across, along = ("/", "%") if self.rows else ("%", "/")
        per = self.slices if self.rows else self.lanes
        emit.line(f"const int lane = threadIdx.x {across} {per};")
        emit.line(f"const int slice = threadIdx.x {along} {per};")
        emit.line(f"const {emit.index_type} result = {emit.block_index} * {self.lanes} + lane;")

    def combine(
        self, emit: ElementEmitter, dtypes: Sequence[DType], partial: list[Expr], fold: Fold
    ) -> None:
        """Fold the threads' partial values in pairs: through shared memory, then by shuffles.

        The thread of slice 0 ends with the whole.
        """
        if self.slices > self._lowest:
            self._through_memory(emit, dtypes, partial, fold, self._lowest)
        delta = min(self.slices, WARP) // 2 if self.rows else 0
        while delta:
            values = [
                emit.bind(dtype, f"hlo::shuffle_down({name}, {delta})")
                for dtype, name in zip(dtypes, partial, strict=True)
            ]
            fold(partial, values)
            delta //= 2

    def _through_memory(
        self,
        emit: ElementEmitter,
        dtypes: Sequence[DType],
        partial: list[Expr],
        fold: Fold,
        lowest: int,
    ) -> None:
        shared = [emit.fresh("s") for _ in dtypes]
        step = 1 if self.rows else self.lanes
        for dtype, name in zip(dtypes, shared, strict=True):
            emit.line(f"__shared__ {compute_type(dtype)} {name}[{self.threads}];")
        for name, value in zip(shared, partial, strict=True):
            emit.line(f"{name}[threadIdx.x] = {value};")
        half = self.slices // 2
        while half >= lowest:
            emit.line("__syncthreads();")
            with emit.block(f"if (slice < {half})"):
                others = [
                    emit.bind(dtype, f"{name}[threadIdx.x + {half * step}]")
                    for dtype, name in zip(dtypes, shared, strict=True)
                ]
                fold(partial, others)
                if half > lowest:
                    for name, value in zip(shared, partial, strict=True):
                        emit.line(f"{name}[threadIdx.x] = {value};")
            half //= 2
