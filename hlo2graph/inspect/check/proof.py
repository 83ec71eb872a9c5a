"""The proof of a whole plan: contents, and the order of every sequence, nested ones too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo2graph.inspect.check.contents import check_contents
from hlo2graph.inspect.check.finding import Finding
from hlo2graph.inspect.check.order import check_order
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Sequence, Slice
from hlo2graph.program.uses import nested


@dataclass(frozen=True, slots=True)
class Proof:
    """What was looked at, and all that is wrong; nothing found means that the plan is right."""

    sequences: int
    thunks: int
    edges: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.findings


def prove(plan: Plan) -> Proof:
    """Check that `plan` orders exactly what must be ordered and reads only what was written."""
    listed = list(_sequences(plan.body, ""))
    findings = [*check_contents(plan)]
    for where, sequence in listed:
        findings += check_order(sequence, where, plan.schedule)
    thunks = sum(len(s.thunks) for _, s in listed)
    edges = sum(len(s.edges) for _, s in listed)
    return Proof(len(listed), thunks, edges, tuple(findings))


def _sequences(sequence: Sequence[Slice], where: str) -> Iterator[tuple[str, Sequence[Slice]]]:
    """Yield `sequence` and those nested in it, each with its place in the plan."""
    yield where, sequence
    for thunk in sequence.thunks:
        home = f"{where}/{thunk.name}" if where else thunk.name
        for label, inner in nested(thunk):
            yield from _sequences(inner, f"{home}/{label}")
