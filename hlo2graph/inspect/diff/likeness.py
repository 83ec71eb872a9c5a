"""What a thunk does, whatever things are called: equal for thunks that compute the same.

A computation's likeness comes from its root down: opcodes, shapes, attributes and literals, without
names, metadata and the order in which instructions happen to be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TypeAlias, assert_never

from hlo2graph.hlo import Computation, Instruction
from hlo2graph.hlo.module import CALLING_ATTRS
from hlo2graph.hlo.printer import format_instruction
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Slice,
    Thunk,
    While,
)

Likeness: TypeAlias = tuple[object, ...]

SAYS_NOTHING = frozenset(
    {
        *("metadata", "frontend_attributes", "origin", "sharding", "statistics"),
        *("control-predecessors", *CALLING_ATTRS),
    }
)


class Likenesses:
    """The likenesses of one plan's thunks."""

    def __init__(self, plan: Plan) -> None:
        self._computations: Mapping[str, Computation] = plan.computations
        self._known: dict[str, str] = {}

    def of(self, thunk: Thunk[Slice]) -> Likeness:
        """Return what two thunks have in common if they do the same on arrays of one shape."""
        match thunk:
            case Kernel() | Library() | Collective():
                return type(thunk).__name__, self.computation(thunk.computation)
            case Copy():
                return "Copy", thunk.target.size
            case Fill():
                return "Fill", thunk.pattern, thunk.target.size
            case While():
                return "While", thunk.trip_count, tuple(s.size for s in thunk.results)
            case Conditional():
                return "Conditional", len(thunk.branches), tuple(s.size for s in thunk.results)
            case _:
                assert_never(thunk)

    def computation(self, name: str) -> str:
        """Return the likeness of a computation: a digest."""
        if name not in self._known:
            computation = self._computations[name]
            digests: dict[str, str] = {}
            for instr in computation.instructions:
                digests[instr.name] = self._instruction(instr, digests)
            self._known[name] = digests[computation.root]
        return self._known[name]

    def _instruction(self, instr: Instruction, digests: Mapping[str, str]) -> str:
        attrs = {
            name: instr.attrs[name] for name in sorted(instr.attrs) if name not in SAYS_NOTHING
        }
        operands = tuple(digests[name] for name in instr.operands)
        text = format_instruction(replace(instr, name="_", operands=operands, attrs=attrs))
        called = " ".join(self.computation(name) for name in instr.called())
        return sha256(f"{text} {called}".encode(errors="surrogateescape")).hexdigest()
