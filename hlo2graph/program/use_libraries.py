"""Which dots a vendor's library computes: Program to Program.

A dot becomes a Library thunk where the target is a GPU and the product is large enough to be worth
a call; each has a workspace of its own, of one fixed size, so that products that run at once never
share one. Smaller products stay kernels of ours, which start sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from hlo2graph.hlo import DTYPES, Computation, Shape
from hlo2graph.ops.matmul import Matmul, matmul_of
from hlo2graph.program.thunks import (
    Conditional,
    Kernel,
    Library,
    Program,
    Sequence,
    Thunk,
    Value,
    While,
)
from hlo2graph.program.uses import first_free_id

WORKSPACE_BYTES = 1 << 20  # enough for split-K of the small products that gain from it
FEWEST_FLOPS = 1 << 18  # below this one of our kernels is done before a library's has started
FEWEST_STEPS = 32  # along the contracting dimension
SAME = frozenset({"f16", "bf16", "f32", "f64", "c64", "c128"})  # operands and result alike
WIDENED = {  # operands of one of these, and what the result may be instead
    frozenset({"f16"}): {"f32"},
    frozenset({"bf16"}): {"f32"},
    frozenset({"s8"}): {"s32"},
    frozenset({"f8e4m3fn"}): {"f16", "bf16", "f32"},
    frozenset({"f8e4m3fn", "f8e5m2"}): {"f16", "bf16", "f32"},
}


def use_libraries(program: Program) -> Program:
    """Return `program` with library calls for the dots that are worth one."""
    ids = count(first_free_id(program))
    return replace(program, body=_Chooser(program.computations, ids).run(program.body))


def is_worth_a_call(product: Matmul) -> bool:
    """Tell whether a library is likely to be faster than a kernel of ours."""
    operands = frozenset({product.lhs.dtype.name, product.rhs.dtype.name})
    out = product.out.dtype.name
    known = (operands == {out} and out in SAME) or out in WIDENED.get(operands, ())
    return known and product.k >= FEWEST_STEPS and product.flops >= FEWEST_FLOPS


class _Chooser:
    """Walks the sequences; `ids` gives new values theirs."""

    def __init__(self, computations: Mapping[str, Computation], ids: count[int]) -> None:
        self._computations = computations
        self._ids = ids
        self._chosen: dict[str, bool] = {}

    def run(self, sequence: Sequence[Value]) -> Sequence[Value]:
        """Return the sequence with its library calls, nested ones too."""
        thunks: list[Thunk[Value]] = []
        for thunk in sequence.thunks:
            match thunk:
                case Kernel() if self._is_chosen(thunk.computation):
                    thunks.append(self._library(thunk))
                case While():
                    condition, body = self.run(thunk.condition), self.run(thunk.body)
                    thunks.append(replace(thunk, condition=condition, body=body))
                case Conditional():
                    branches = tuple(self.run(b) for b in thunk.branches)
                    thunks.append(replace(thunk, branches=branches))
                case _:
                    thunks.append(thunk)
        return replace(sequence, thunks=tuple(thunks))

    def _is_chosen(self, name: str) -> bool:
        if name not in self._chosen:
            product = matmul_of(self._computations[name])
            self._chosen[name] = product is not None and is_worth_a_call(product)
        return self._chosen[name]

    def _library(self, kernel: Kernel[Value]) -> Library[Value]:
        shape = Shape(DTYPES["u8"], (WORKSPACE_BYTES,))
        workspace = Value(next(self._ids), shape, f"{kernel.name}.workspace")
        return Library(
            kernel.name,
            kernel.computation,
            kernel.reads,
            kernel.writes,
            (workspace,),
            kernel.after,
            kernel.metadata,
            kernel.span,
        )
