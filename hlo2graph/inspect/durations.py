"""How long each thunk takes: as `run --profile nodes --json` measured it, or a simple estimate.

The estimate is that of `budget`: bytes over bandwidth, operations over rate, and a node's latency.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlo2graph.errors import InputError
from hlo2graph.inspect.budget_cost import Costs
from hlo2graph.program.device_figures import (
    BRANCH_SECONDS,
    DEVICES,
    NODE_SECONDS,
    ROUND_SECONDS,
)
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Sequence, Slice, Thunk, While
from hlo2graph.program.uses import nested


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of one launch, and of all launches in one run."""

    each: float
    total: float


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations by thunk name; `how` says where they come from."""

    how: str
    by_name: Mapping[str, Duration]

    def each(self, thunk: Thunk[Slice]) -> float | None:
        """Return the seconds of one launch, None where it is not known."""
        found = self.by_name.get(base_name(thunk.name))
        return None if found is None else found.each

    def total(self, thunk: Thunk[Slice]) -> float | None:
        """Return the seconds of all launches in one run."""
        found = self.by_name.get(base_name(thunk.name))
        return None if found is None else found.total


def base_name(name: str) -> str:
    """Return a thunk's name without the rounds of loops that are written out: `loop[3]/add`."""
    return name.rpartition("]/")[2]


def device_of(plan: Plan) -> str:
    """Return the name of a GPU of the plan's target; for the host an H200."""
    return next((name for name, d in DEVICES.items() if d.target == plan.target), "h200")


def estimated(plan: Plan) -> Durations:
    """Return what each thunk takes by itself on a GPU of the plan's target.

    A loop whose trip count is not known is taken to run once, a conditional all its branches.
    """
    device = device_of(plan)
    costs = Costs(plan, DEVICES[device])
    most: dict[str, float] = {}
    runs: dict[str, float] = defaultdict(float)

    def go(sequence: Sequence[Slice], times: int) -> float:
        """Note a sequence's thunks; return the seconds of one run of it, one after the other."""
        took = 0.0
        for thunk in sequence.thunks:
            rounds = max(1, thunk.trip_count or 1) if isinstance(thunk, While) else 1
            if inner := nested(thunk):
                extra = ROUND_SECONDS if isinstance(thunk, While) else BRANCH_SECONDS
                each = rounds * (extra + sum(go(held, times * rounds) for _, held in inner))
            else:
                each = NODE_SECONDS + costs.of(thunk).seconds
            most[thunk.name] = max(each, most.get(thunk.name, 0.0))
            runs[thunk.name] += each * times
            took += each
        return took

    go(plan.body, 1)
    found = {name: Duration(each, runs[name]) for name, each in most.items()}
    return Durations(f"estimated for an {device.upper()}", found)


def measured(text: str, plan: Plan) -> Durations:
    """Read what `run --profile nodes --json` wrote for the program of `plan`.

    Raises InputError where it is no such report, holds no times, or is another program's.
    """
    reports = _reports(text)
    report = next((r for r in reports if r.get("module") == plan.name), None)
    if report is None:
        names = ", ".join(str(r.get("module")) for r in reports)
        raise InputError(f"the times are of {names}, not of {plan.name}")
    profile = report.get("profile")
    if not isinstance(profile, dict):
        raise InputError("the report holds no node times; `run --profile nodes --json` writes them")
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    try:
        for node in profile["nodes"]:
            held = sums[base_name(str(node["name"]))]
            held[0] += float(node["launches"])
            held[1] += float(node["total"])
    except (KeyError, TypeError, ValueError):
        raise InputError("the report's node times are not as run --json writes them") from None
    found = {n: Duration(total / max(times, 1), total) for n, (times, total) in sums.items()}
    return Durations(f"measured on {report.get('machine', report.get('backend'))}", found)


def _reports(text: str) -> list[dict[str, Any]]:
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(
            "the times are no JSON; `run --profile nodes --json` writes them"
        ) from None
    reports = held if isinstance(held, list) else [held]
    if not reports or not all(isinstance(r, dict) for r in reports):
        raise InputError("the times are no report; `run --profile nodes --json` writes one")
    return reports
