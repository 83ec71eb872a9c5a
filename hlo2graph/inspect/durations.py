"""How long each thunk takes: as `run --profile nodes --json` measured it, or a simple estimate.

The estimate is a launch and the bytes read and written at the speed of the target's memory.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlo2graph.errors import InputError
from hlo2graph.program.device_figures import figures_for
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Sequence, Slice, Thunk, While
from hlo2graph.program.uses import nested, reads, writes

LAUNCH = 1.5e-6  # seconds from one graph node to the next that waits for it


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


def estimated(plan: Plan) -> Durations:
    """Return what launching and moving bytes takes on the plan's target.

    A loop whose trip count is not known is taken to run once, a conditional all its branches.
    """
    speed = figures_for(plan.target).bytes_per_second
    totals: dict[str, list[float]] = defaultdict(list)

    def go(sequence: Sequence[Slice], times: int) -> float:
        """Note a sequence's thunks; return the seconds of one run of it, one after the other."""
        took = 0.0
        for thunk in sequence.thunks:
            rounds = (thunk.trip_count or 1) if isinstance(thunk, While) else 1
            each = LAUNCH
            if inner := nested(thunk):
                each += rounds * sum(go(held, times * rounds) for _, held in inner)
            else:
                each += sum(s.size for s in (*reads(thunk), *writes(thunk))) / speed
            totals[thunk.name].append(each)
            runs[thunk.name] = runs.get(thunk.name, 0.0) + each * times
            took += each
        return took

    runs: dict[str, float] = {}
    go(plan.body, 1)
    found = {name: Duration(max(held), runs[name]) for name, held in totals.items()}
    return Durations("estimated: a launch and the bytes moved", found)


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
