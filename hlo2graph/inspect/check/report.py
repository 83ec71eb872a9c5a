"""What `check` says: the proof and the runs, as text and as JSON.

Schema `hlo2graph.check`, version 1:

    schema    {"name": "hlo2graph.check", "version": 1}
    module    string
    ok        true where nothing was found and every run gave the same bits
    sequences, thunks, edges: how many were looked at, in all
    findings  [{"kind", "in": the loop or branch, '' for the body, "text"}]
    runs      [{"how", "runs", "equal"}]
    skipped   why it was not run, or null
    caveats   [string]; what running as one replica makes of communication between devices
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hlo2graph.inspect.check import Finding, Kind, Proof
from hlo2graph.inspect.figures import in_all, plural
from hlo2graph.inspect.self_check import Check
from hlo2graph.program.one_device import caveats_of
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import plan_stats

SCHEMA = {"name": "hlo2graph.check", "version": 1}
PROPERTIES = (
    ("ordered", (Kind.UNORDERED,), "every pair of thunks that touch the same bytes is ordered"),
    ("needed", (Kind.REDUNDANT, Kind.BASELESS), "no edge is superfluous"),
    ("written", (Kind.UNWRITTEN,), "no byte is read before it is written"),
    ("owned", (Kind.PROTECTED,), "only what is the plan's, or donated, is written"),
    ("placed", (Kind.BOUNDS, Kind.OVERLAP, Kind.STATE), "slices lie inside, apart or in place"),
)
SHOWN = 20  # findings of one property that the text names


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The proof of a plan, and its runs in other orders; `skipped` says why there are none."""

    plan: Plan
    proof: Proof
    runs: tuple[Check, ...] = ()
    skipped: str = ""

    @property
    def ok(self) -> bool:
        """The plan is right as far as was looked."""
        return self.proof.ok and all(check.ok for check in self.runs)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the runs made of communication between devices."""
        return caveats_of(self.plan) if self.runs else ()


def check_text(report: CheckReport) -> str:
    """Return a line a property, with what violates it below."""
    return "\n".join(_lines(report)) + "\n"


def check_json(report: CheckReport) -> dict[str, Any]:
    """Return what `check --json` prints."""
    proof = report.proof
    return {
        "schema": SCHEMA,
        "module": report.plan.name,
        "ok": report.ok,
        "sequences": proof.sequences,
        "thunks": proof.thunks,
        "edges": proof.edges,
        "findings": [{"kind": str(f.kind), "in": f.where, "text": f.text} for f in proof.findings],
        "runs": [{"how": c.how, "runs": c.runs, "equal": c.ok} for c in report.runs],
        "skipped": report.skipped or None,
        "caveats": list(report.caveats),
    }


def _lines(report: CheckReport) -> Iterator[str]:
    proof = report.proof
    stats = plan_stats(report.plan)
    size = f"{plural(stats.nodes, 'thunk')}, {plural(stats.edges, 'edge')}"
    yield f"{report.plan.name}   {size}{in_all(stats)}"
    for name, kinds, claim in PROPERTIES:
        found = [f for f in proof.findings if f.kind in kinds]
        held = f"NO: {plural(len(found), 'fault')}" if found else claim
        yield f"  {name:8} {held}"
        yield from _faults(found)
    for check in report.runs:
        bits = "same bits as program order" if check.ok else "NO: other bits than program order"
        yield f"  {'run':8} {check.how}, memory poisoned before each: {bits}"
    if report.skipped:
        yield f"  {'run':8} not run: {report.skipped}"


def _faults(found: list[Finding]) -> Iterator[str]:
    for finding in found[:SHOWN]:
        place = f"in {finding.where}: " if finding.where else ""
        yield f"    {place}{finding.text}"
    if len(found) > SHOWN:
        yield f"    and {len(found) - SHOWN} more"
