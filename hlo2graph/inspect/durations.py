"""How long each thunk takes: as `run` measured it, or a simple estimate.

The estimate is that of `budget`: bytes over bandwidth, operations over rate, and a node's latency.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from hlo2graph.errors import InputError
from hlo2graph.inspect.budget.cost import Costs
from hlo2graph.program.device_figures import (
    BRANCH_SECONDS,
    DEVICES,
    NODE_SECONDS,
    ROUND_SECONDS,
)
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Sequence, Slice, Thunk, While
from hlo2graph.program.uses import nested, walk

WRITE = "`run --trace FILE` and `run --profile nodes --json FILE` write them"
MICRO = 1e-6


@dataclass(frozen=True, slots=True)
class Duration:
    """Seconds of one launch, and of all launches in one run."""

    each: float
    total: float


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations by thunk name; `how` says where they come from.

    `spans` are names, beginnings and ends in seconds of every run that was traced.
    """

    how: str
    by_name: Mapping[str, Duration]
    spans: tuple[tuple[str, float, float], ...] = ()

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


def measured(data: bytes, filename: str, plan: Plan) -> Durations:
    """Read what `run --profile nodes --json` or `run --trace` wrote for the program of `plan`.

    Raises InputError where it is neither, holds no times, or is another program's.
    """
    try:
        held = json.loads(data)
    except (ValueError, RecursionError):
        raise InputError(f"{filename}: the times are no JSON; {WRITE}") from None
    try:
        if isinstance(held, dict) and "traceEvents" in held:
            found = _of_trace(held, plan)
        else:
            found = _of_report(held if isinstance(held, list) else [held], plan)
        _check_names(found, plan)
        return found
    except InputError as error:
        raise InputError(f"{filename}: {error.message}") from None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{filename}: the times are not as run writes them; {WRITE}") from None


def _of_report(reports: list[Any], plan: Plan) -> Durations:
    report = next((r for r in reports if r["module"] == plan.name), None)
    if report is None:
        names = ", ".join(str(r["module"]) for r in reports)
        raise InputError(f"the times are of {names or 'nothing'}, not of {plan.name}")
    if report["profile"] is None:
        raise InputError(f"the report holds no times of nodes; {WRITE}")
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for node in report["profile"]["nodes"]:
        held = sums[base_name(node["name"])]
        held[0] += float(node["launches"])
        held[1] += float(node["total"])
    _check_plan(report, plan)
    return Durations(f"measured on {report['machine']}", _averaged(sums))


def _of_trace(trace: dict[str, Any], plan: Plan) -> Durations:
    about = trace["otherData"]
    if about["program"] != plan.name:
        raise InputError(f"the times are of {about['program']}, not of {plan.name}")
    _check_plan(about, plan)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    spans = []
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            name, took = base_name(event["name"]), float(event["dur"]) * MICRO
            begin = float(event["ts"]) * MICRO
            sums[name][0] += 1
            sums[name][1] += took
            spans.append((name, begin, begin + took))
    how = f"measured: {about['times']}"
    return Durations(how, _averaged(sums), tuple(spans))


def _check_plan(about: Mapping[str, Any], plan: Plan) -> None:
    """Refuse times of another target or fusion, where the same names mean other kernels."""
    if (about["target"], about["fuse"]) != (plan.target, plan.fuse):
        was = f"--target {about['target']} --fuse {about['fuse']}"
        raise InputError(f"the times are of another plan of {plan.name}: draw it with {was}")


def _check_names(found: Durations, plan: Plan) -> None:
    """Refuse times of which most name no thunk: JAX calls many modules alike."""
    names = {base_name(thunk.name) for thunk in walk(plan.body)}
    others = [name for name in found.by_name if name not in names]
    if 2 * len(others) > len(found.by_name):
        raise InputError(
            f"the times are of another module that is called {plan.name} too: "
            f"no thunk here is called {others[0]}"
        )


def _averaged(sums: Mapping[str, list[float]]) -> dict[str, Duration]:
    """Return durations from numbers of launches and seconds of all of them together."""
    if not all(isfinite(total) for _, total in sums.values()):
        raise ValueError
    return {n: Duration(total / max(times, 1), total) for n, (times, total) in sums.items()}
