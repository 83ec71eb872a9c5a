"""The proof of a whole plan: contents, and the order of every sequence, nested ones too."""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.inspect.check.contents import check_contents
from hlo2graph.inspect.check.finding import Finding
from hlo2graph.inspect.check.order import check_order
from hlo2graph.program.plan import Plan
from hlo2graph.program.uses import placed


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
    listed = list(placed(plan.body))
    findings = [*check_contents(plan)]
    for where, sequence in listed:
        findings += check_order(sequence, where, plan.schedule)
    thunks = sum(len(s.thunks) for _, s in listed)
    edges = sum(len(s.edges) for _, s in listed)
    return Proof(len(listed), thunks, edges, tuple(findings))
