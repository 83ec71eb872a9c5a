"""The library calls of a plan: planned before anything runs, captured once where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from sys import is_finalizing
from typing import Any

from hlo2graph.backends.cuda.blas import INSTALL, BlasPlan, library
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.ops.matmul import matmul_of
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Library
from hlo2graph.program.uses import walk


class Products:
    """cuBLASLt's plans by computation.

    `notes` says which thunks run on our own kernels instead; `tf32` tells whether a product of f32
    rounds its operands to TF32.
    """

    def __init__(self, plan: Plan, *, precise: bool) -> None:
        """Plan every distinct product of `plan`'s Library thunks; `precise` forbids TF32."""
        thunks = [t for t in walk(plan.body) if isinstance(t, Library)]
        self.plans: Mapping[str, BlasPlan] = {}
        self.notes: tuple[str, ...] = ()
        self.tf32 = False
        if not thunks:
            return
        if library() is None:
            count = f"{len(thunks)} products run" if len(thunks) > 1 else "1 product runs"
            self.notes = (f"{count} on our own kernels: cuBLASLt is not there ({INSTALL})",)
            return
        found: dict[str, BlasPlan] = {}
        notes = []
        for thunk in {t.computation: t for t in thunks}.values():
            workspace = thunk.workspace[0].size if thunk.workspace else 0
            product = matmul_of(plan.computations[thunk.computation])
            try:
                if product is None:
                    raise NotImplementedError("it is no product of two matrices")
                exact = precise or product.exact
                if exact and product.lhs.dtype.bits < 32 and product.lhs.dtype.is_float:
                    continue  # tensor cores drop bits of such sums; our kernels add in f32
                found[thunk.computation] = BlasPlan(product, precise=exact, workspace=workspace)
                self.tf32 |= not exact and product.lhs.dtype.name in ("f32", "c64")
            except NotImplementedError as reason:
                notes.append(f"{thunk.name} runs on a kernel of ours: {reason}")
        self.plans, self.notes = found, tuple(notes)


class CapturedGraph:
    """What a library enqueued on a stream, as a graph; destroyed with the object."""

    __slots__ = ("handle",)

    def __init__(self, enqueue: Any, place: str) -> None:
        self.handle: Any = None
        stream = call(cuda.cuStreamCreate, cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)
        try:
            mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
            call(cuda.cuStreamBeginCapture, stream, mode, doing=f"capturing {place}")
            try:
                enqueue(int(stream))
            finally:
                self.handle = call(cuda.cuStreamEndCapture, stream, doing=f"capturing {place}")
        finally:
            cuda.cuStreamDestroy(stream)

    def __del__(self) -> None:
        if cuda is not None and not is_finalizing() and self.handle is not None:
            cuda.cuGraphDestroy(self.handle)
