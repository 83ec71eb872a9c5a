"""What `budget` says: memory against concurrency and time, as text and as JSON.

Schema `hlo2graph.budget`, version 1; sizes in bytes:

    schema     {"name": "hlo2graph.budget", "version": 1}
    module, target, fuse: strings
    device     {"name", "bytes_per_second", "vector_flops", "tensor_flops", "node_seconds"}
    lower_bound_bytes
    points     [{"name", "like": string or null, "arena_bytes", "thunks", "edges", "false", "width",
                 "path", "seconds", "edges_in_all", "false_in_all"}]: from the least memory to the
               most; in all: those of loops and branches too
    false      edges that the program does not ask for: reuse, in place, the serial schedule
    like       "XLA's LHS" or "XLA's CONCURRENT": the mode of XLA that shares memory by that rule
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hlo2graph.inspect.budget.time import estimated_seconds
from hlo2graph.inspect.durations import device_of
from hlo2graph.inspect.explain.paths import ARTEFACTS
from hlo2graph.inspect.figures import bytes_text, columns, time_text
from hlo2graph.program.buffers.sweep import DEFAULT, SERIAL
from hlo2graph.program.device_figures import DEVICES, NODE_SECONDS
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import plan_stats
from hlo2graph.program.uses import nested, placed

SCHEMA = {"name": "hlo2graph.budget", "version": 1}
LIKE = {SERIAL: "XLA's LHS", DEFAULT: "XLA's CONCURRENT"}


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """One plan in figures."""

    name: str
    arena: int
    thunks: int
    edges: int
    false: int
    width: int
    path: int
    seconds: float
    edges_in_all: int
    false_in_all: int

    @property
    def like(self) -> str | None:
        """The mode of XLA that shares memory by the same rule."""
        return LIKE.get(self.name)


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """The points of one module on one device."""

    module: str
    target: str
    fuse: str
    device: str
    lower_bound: int
    points: tuple[BudgetPoint, ...]
    is_nested: bool  # there are loops or conditionals


def report_budget(plans: Iterable[tuple[str, Plan]], device: str | None) -> BudgetReport:
    """Return the report on plans of one module, by name; it keeps none of them.

    device: a name of DEVICES; None for the one that the plans' target stands for.
    """
    points = []
    for name, plan in plans:
        device = device or device_of(plan)
        points.append(_measure(name, plan, device))
    assert device is not None  # there are plans
    ordered = tuple(sorted(points, key=lambda point: point.arena))
    bound = plan.arena.lower_bound
    is_nested = any(nested(thunk) for thunk in plan.body.thunks)
    return BudgetReport(plan.name, plan.target, plan.fuse, device, bound, ordered, is_nested)


def _measure(name: str, plan: Plan, device: str) -> BudgetPoint:
    """Return the figures of one plan."""
    stats = plan_stats(plan)
    false = sum(count for hazard, count in stats.by_hazard.items() if hazard in ARTEFACTS)
    seconds = estimated_seconds(plan, DEVICES[device])
    in_all = (edge.hazard for _, sequence in placed(plan.body) for edge in sequence.edges)
    return BudgetPoint(
        name,
        stats.arena_bytes,
        stats.nodes,
        stats.edges,
        false,
        stats.width,
        stats.critical_path,
        seconds,
        stats.edges_in_all,
        sum(hazard in ARTEFACTS for hazard in in_all),
    )


def budget_text(report: BudgetReport) -> str:
    """Return the table of points, one row for those of the same figures, and what they are."""
    device = DEVICES[report.device]
    named: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for point in report.points:
        ratio = f"{point.arena / report.lower_bound:.2f}" if report.lower_bound else ""
        counts = (point.edges_in_all, point.false_in_all, point.width, point.path)
        times = time_text(point.seconds)
        like = f"as {point.like}" if point.like else ""
        figures = bytes_text(point.arena), ratio, *map(str, counts), times, like
        named[figures].append(point.name)
    edges = ("edges in all", "false in all") if report.is_nested else ("edges", "false")
    head = ("", "arena", "of alive", *edges, "width", "path", "time", "")
    rows = [head, *((", ".join(names), *figures) for figures, names in named.items())]
    speeds = (
        f"{device.figures.bytes_per_second / 1e12:.2f} TB/s, "
        f"{device.vector_flops / 1e12:.0f} TFLOP/s, "
        f"{device.tensor_flops / 1e12:.0f} in TF32 products, "
        f"{time_text(NODE_SECONDS)} a node"
    )
    title = f"{report.module}   target {report.target}, fuse {report.fuse}"
    outermost = "  width and path: a loop or conditional is one thunk"
    lines = [
        f"{title}, time estimated for {_priced(report)}",
        f"  {speeds}",
        f"  alive at once in program order: {bytes_text(report.lower_bound)}",
        *(f"  {line}" for line in _table(rows)),
        *[outermost] * report.is_nested,
    ]
    return "\n".join(lines) + "\n"


def _priced(report: BudgetReport) -> str:
    """Return the device whose figures the times are of; of the host there are none."""
    of_another = ", there being no figures of the host" if report.target == "host" else ""
    return f"{report.device}{of_another}"


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Align the last column to the left, as the first."""
    width = max(len(row[-1]) for row in rows)
    return columns([(*row[:-1], row[-1].ljust(width)) for row in rows], 1)


def budget_json(report: BudgetReport) -> dict[str, Any]:
    """Return what `budget --json` prints."""
    device = DEVICES[report.device]
    return {
        "schema": SCHEMA,
        "module": report.module,
        "target": report.target,
        "fuse": report.fuse,
        "device": {
            "name": report.device,
            "bytes_per_second": device.figures.bytes_per_second,
            "vector_flops": device.vector_flops,
            "tensor_flops": device.tensor_flops,
            "node_seconds": NODE_SECONDS,
        },
        "lower_bound_bytes": report.lower_bound,
        "points": [
            {
                "name": point.name,
                "like": point.like,
                "arena_bytes": point.arena,
                "thunks": point.thunks,
                "edges": point.edges,
                "false": point.false,
                "width": point.width,
                "path": point.path,
                "seconds": point.seconds,
                "edges_in_all": point.edges_in_all,
                "false_in_all": point.false_in_all,
            }
            for point in report.points
        ],
    }
