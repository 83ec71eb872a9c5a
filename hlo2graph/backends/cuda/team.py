"""Threads that compute one result together: how a block is divided, how their parts are folded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.ctypes import compute_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.hlo import DType
from hlo2graph.ops.device import Expr

WARP = 32
FEW_BLOCKS = 256  # about two a multiprocessor: with fewer, a row is given more threads
WIDE_TEAM = 256
WIDEST_TEAM = 512
LONG = 4096  # steps from which a row takes the widest team
UNROLL = 4  # steps whose loads are under way at once

Fold = Callable[[Sequence[Expr], Sequence[Expr]], None]


@dataclass(frozen=True, slots=True)
class Part:
    """What each thread holds of one fold, in variables, and how two such parts become one."""

    dtypes: Sequence[DType]
    held: Sequence[Expr]
    fold: Fold


@dataclass(frozen=True, slots=True)
class Team:
    """`lanes` results a block, `slices` threads side by side for each: powers of two.

    A block has whole warps. Where `blocks` are a cluster, all their threads have one result.
    """

    lanes: int
    slices: int
    blocks: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.slices // self.blocks

    @staticmethod
    def for_rows(results: int, steps: int) -> Team:
        """Return a team for rows of `steps`: a warp each, more where rows are long or few."""
        most = WARP
        if steps >= LONG:
            most = WIDEST_TEAM
        elif steps >= 1024 or (steps >= 128 and results * WARP < FEW_BLOCKS * WIDE_TEAM // 8):
            most = WIDE_TEAM
        slices = min(most, 1 << (steps.bit_length() - 1))
        return Team(max(1, WIDE_TEAM // slices), slices)

    def place(self, emit: ElementEmitter, folds: int = 1) -> None:
        """Declare `lane`, `slice` and the number of the `result`, for so many folds to come."""
        if self.blocks > 1:
            self._place_cluster(emit, folds)
            return
        emit.line(f"const int lane = threadIdx.x / {self.slices};")
        emit.line(f"const int slice = threadIdx.x % {self.slices};")
        emit.line(f"const {emit.index_type} result = {emit.block_index} * {self.lanes} + lane;")

    def _place_cluster(self, emit: ElementEmitter, folds: int) -> None:
        emit.line(f"__shared__ hlo::u64 meetings[{folds}];")
        emit.line(f"hlo::meetings_open(meetings, {folds});")
        number, wide = emit.block_index, emit.index_type
        emit.line(f"const int rank = {number} % {self.blocks};")
        emit.line(f"const int slice = rank * {self.threads} + threadIdx.x;")
        emit.line(f"const {wide} result = {number} / {self.blocks};")

    def meet(self, emit: ElementEmitter) -> None:
        """Wait, before parts are first folded, until all blocks of a cluster are there."""
        if self.blocks > 1:
            emit.line("hlo::cluster_waits();")

    def combine(
        self, emit: ElementEmitter, parts: Sequence[Part], *, all_threads: bool, number: int = 0
    ) -> None:
        """Fold the threads' parts in pairs, in a fixed order: the fold of that number.

        The whole is left with the thread of slice 0, or with all threads of the result. All threads
        of the block take part.
        """
        self._shuffled(emit, parts, min(self.slices, WARP) // 2)
        warps = self.slices // WARP
        if warps > 1:
            if self.blocks == 1:
                self._exchange(emit, parts, warps)
            else:
                self._exchange_cluster(emit, parts, warps, f"&meetings[{number}]")
            self._shuffled(emit, parts, min(warps, WARP) // 2)
        if all_threads and self.slices > 1:
            first = f"threadIdx.x % {WARP} / {self.slices} * {self.slices}"
            source = "0" if self.slices >= WARP else emit.integer(first)
            for part in parts:
                for name in part.held:
                    emit.line(f"{name} = hlo::shuffle_from({name}, {source});")

    def _shuffled(self, emit: ElementEmitter, parts: Sequence[Part], delta: int) -> None:
        """Fold what the threads of a warp hold, from those `delta` lanes apart on."""
        while delta:
            for part in parts:
                values = [
                    emit.bind(dtype, f"hlo::shuffle_down({name}, {delta})")
                    for dtype, name in zip(part.dtypes, part.held, strict=True)
                ]
                part.fold(part.held, values)
            delta //= 2

    def _exchange(self, emit: ElementEmitter, parts: Sequence[Part], warps: int) -> None:
        """Give each thread what one of the result's warps holds: the next ones, side by side."""
        shared: list[tuple[str, Expr]] = []
        for part in parts:
            for dtype, name in zip(part.dtypes, part.held, strict=True):
                place = emit.fresh("s")
                emit.line(f"__shared__ {compute_type(dtype)} {place}[{self.threads // WARP}];")
                shared.append((place, name))
        with emit.block(f"if (threadIdx.x % {WARP} == 0)"):
            for place, name in shared:
                emit.line(f"{place}[threadIdx.x / {WARP}] = {name};")
        emit.line("__syncthreads();")
        for place, name in shared:
            emit.line(f"{name} = {place}[lane * {warps} + slice % {warps}];")

    def _exchange_cluster(
        self, emit: ElementEmitter, parts: Sequence[Part], warps: int, meeting: Expr
    ) -> None:
        """Give each thread what a lane of all warps of the cluster holds.

        A warp's lanes hand over its part, one to each block. A block waits for what it is to get:
        to wait for all blocks at a barrier takes longer.
        """
        shared: list[tuple[Part, list[str]]] = []
        for part in parts:
            places = [emit.fresh("s") for _ in part.held]
            for dtype, place in zip(part.dtypes, places, strict=True):
                emit.line(f"__shared__ hlo::Handed<{compute_type(dtype)}> {place}[{warps}];")
            shared.append((part, places))
            for name in part.held:
                emit.line(f"{name} = hlo::shuffle_from({name}, 0);")
        mine, to = f"slice / {WARP}", f"threadIdx.x % {WARP}"
        sizes = " + ".join(f"sizeof({place})" for _, places in shared for place in places)
        emit.line(f"hlo::meeting_expects({meeting}, {sizes});")
        with emit.block(f"if ({to} < {self.blocks})"):
            for part, places in shared:
                for place, name in zip(places, part.held, strict=True):
                    emit.line(f"hlo::hand_over(&{place}[{mine}], {name}, {to}, {meeting});")
        emit.line(f"hlo::meeting_ends({meeting});")
        for part, places in shared:
            at = f"threadIdx.x % {min(warps, WARP)}"
            for place, name in zip(places, part.held, strict=True):
                emit.line(f"{name} = hlo::handed({place}[{at}]);")
            for first in range(WARP, warps, WARP):
                values = [
                    emit.bind(dtype, f"hlo::handed({place}[{first} + {at}])")
                    for dtype, place in zip(part.dtypes, places, strict=True)
                ]
                part.fold(part.held, values)
