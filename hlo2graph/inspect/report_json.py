"""The run report as JSON.

Schema `hlo2graph.run`, version 1; seconds and bytes throughout; a number that is not finite is one
of the strings "NaN", "Infinity", "-Infinity":

    schema    {"name": "hlo2graph.run", "version": 1}
    module, backend, machine, target, fuse, schedule: strings
    settings  [string]
    seed      integer, or null where every input was given
    ok        true where every check held
    inputs    [{"name", "dtype", "shape", "bytes"}]
    outputs   [{"name", "dtype", "shape", "bytes", "min", "max", "mean", "nan", "infinite"}]
    checks    [{"against", "how", "ok", "runs", "bit_equal", "vague", "results": [{"name",
               "ok", "elements", "wrong", "worst", "at", "relative", "absolute"}]}]; bit_equal is
               null where the check is within a tolerance; vague says why it tells nothing, null
               where it does
    plan      {"nodes", "edges", "hazards": {name: count}, "width", "critical_path",
               "arena_bytes", "lower_bound_bytes", "sum_bytes", "nodes_in_all",
               "edges_in_all"}; a loop is one node, but in all its own count too
    stages    [{"name", "seconds"}]
    timing    null, or {"rounds", "reliable", "doubts", "modes": [{"name", "how", "median",
               "spread", "percentiles": {"50": seconds}, "enqueue", "device",
               "ratio": {"value", "low", "high"}}]}; ratio is to the first mode, paired by round
    verdict   [string]
    caveats   [string]; what running as one replica makes of communication between devices
    memory    null, or bytes on the GPU: {"instances", "parameters", "constants", "results",
               "temporaries", "graphs" (a count), "driver" (taken for these), "shared",
               "sharers": [string], "in_graphs", "total"}
    captured  null where all is one graph, or {"graphs": [{"where", "thunks": [string]}],
               "alone": [{"where", "name", "kind", "why"}]}
    profile   null, or {"how", "span", "overlap", "nodes": [{"name", "launches", "each", "total"}]}
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from hlo2graph.hlo import Shape
from hlo2graph.inspect.compare import Comparison
from hlo2graph.inspect.held import memory_json
from hlo2graph.inspect.report import RunReport
from hlo2graph.inspect.self_check import Check
from hlo2graph.inspect.summary import Summary
from hlo2graph.inspect.timing import ModeTiming, Ratio, Timings

if TYPE_CHECKING:
    from hlo2graph.inspect.profile import Profile

Json: TypeAlias = dict[str, Any]
SCHEMA = {"name": "hlo2graph.run", "version": 1}


def report_json(report: RunReport) -> Json:
    """Return the report as the module's docstring has it."""
    plan, stats = report.plan, report.stats
    return {
        "schema": dict(SCHEMA),
        "module": plan.name,
        "backend": report.backend,
        "machine": report.machine,
        "target": plan.target,
        "fuse": plan.fuse,
        "schedule": plan.schedule,
        "settings": list(report.settings),
        "seed": report.seed,
        "ok": report.ok,
        "inputs": [_leaf(b.name, b.shape) for b in plan.inputs],
        "outputs": [_output(r) for r in report.results],
        "checks": [_check(c) for c in report.checks],
        "plan": {
            "nodes": stats.nodes,
            "edges": stats.edges,
            "hazards": {str(hazard): count for hazard, count in stats.by_hazard.items()},
            "width": stats.width,
            "critical_path": stats.critical_path,
            "arena_bytes": stats.arena_bytes,
            "lower_bound_bytes": stats.lower_bound_bytes,
            "sum_bytes": stats.sum_bytes,
            "nodes_in_all": stats.nodes_in_all,
            "edges_in_all": stats.edges_in_all,
        },
        "stages": [{"name": s.name, "seconds": s.seconds} for s in report.stages],
        "timing": None if report.timings is None else _timing(report.timings),
        "verdict": list(report.sentences),
        "caveats": list(report.caveats),
        "memory": None if report.memory is None else memory_json(report.memory),
        "captured": None if report.captured is None else report.captured.json(),
        "profile": None if report.profile is None else _profile(report.profile),
    }


def _profile(profile: Profile) -> Json:
    from hlo2graph.inspect.profile import profile_json

    return profile_json(profile)


def _leaf(name: str, shape: Shape) -> Json:
    return {
        "name": name,
        "dtype": str(shape.dtype),
        "shape": list(shape.dims),
        "bytes": shape.size,
    }


def _output(result: Summary) -> Json:
    return _leaf(result.name, result.shape) | {
        "min": result.low,
        "max": result.high,
        "mean": _finite(result.mean),
        "nan": result.nans,
        "infinite": result.infinities,
    }


def _check(check: Check) -> Json:
    return {
        "against": check.against,
        "how": check.how,
        "ok": check.ok,
        "runs": check.runs,
        "bit_equal": None if check.comparisons else check.ok,
        "vague": check.vague or None,
        "results": [_comparison(c) for c in check.comparisons],
    }


def _comparison(comparison: Comparison) -> Json:
    return {
        "name": comparison.name,
        "ok": comparison.ok,
        "elements": comparison.elements,
        "wrong": comparison.wrong,
        "worst": _finite(comparison.worst),
        "at": None if comparison.at is None else list(comparison.at),
        "relative": _finite(comparison.tolerance.relative),
        "absolute": _finite(comparison.tolerance.absolute),
    }


def _timing(timings: Timings) -> Json:
    return {
        "rounds": timings.rounds,
        "reliable": timings.is_reliable,
        "doubts": list(timings.doubts),
        "modes": [
            _mode(m, r, timings.percentiles)
            for m, r in zip(timings.modes, timings.ratios, strict=True)
        ],
    }


def _mode(timing: ModeTiming, ratio: Ratio, percentiles: tuple[float, ...]) -> Json:
    return {
        "name": timing.mode.name,
        "how": timing.mode.how,
        "median": timing.median,
        "spread": timing.spread,
        "percentiles": {f"{p:g}": timing.percentile(p) for p in percentiles},
        "enqueue": timing.enqueue,
        "device": timing.device,
        "ratio": {"value": ratio.value, "low": ratio.low, "high": ratio.high},
    }


def _finite(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinities."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
