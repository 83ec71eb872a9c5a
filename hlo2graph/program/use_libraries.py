"""Which dots a vendor's library computes: Program to Program.

A dot becomes a Library thunk where the target is a GPU and the rule it is given asks for a call;
each has a workspace of its own, of one fixed size, so that products that run at once never share
one. Other dots stay kernels of ours, which start sooner and take in the work around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from hlo2graph.hlo import DTYPES, Computation, Instruction, Shape
from hlo2graph.ops.matmul import matmul_of
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

IsOwn: TypeAlias = Callable[[Instruction, Shape, Shape], bool]


def use_libraries(program: Program, is_own: IsOwn) -> Program:
    """Return `program` with library calls for its dots, but for those that `is_own` keeps.

    `is_own` is given a dot and the shapes of its operands; `ops.own_dot` has the rules.
    """
    ids = count(first_free_id(program))
    return replace(program, body=_Chooser(program.computations, ids, is_own).run(program.body))


class _Chooser:
    """Walks the sequences; `ids` gives new values theirs."""

    def __init__(
        self, computations: Mapping[str, Computation], ids: count[int], is_own: IsOwn
    ) -> None:
        self._computations = computations
        self._ids = ids
        self._is_own = is_own
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
            self._chosen[name] = self._is_better(self._computations[name])
        return self._chosen[name]

    def _is_better(self, computation: Computation) -> bool:
        """Tell whether a library runs the computation, and better than a kernel of ours."""
        if matmul_of(computation) is None:
            return False
        dot = computation.result
        lhs, rhs = (computation[name].shape for name in dot.operands)
        assert isinstance(lhs, Shape)
        assert isinstance(rhs, Shape)
        return not self._is_own(dot, lhs, rhs)

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
