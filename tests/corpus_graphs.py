"""Rebuild XLA's graphs from its dumps, hold them against its own print, and count edges.

    python tests/corpus_graphs.py DUMPS [PROGRAMS]

DUMPS holds PROGRAM/MODE folders, MODE being LHS or CONCURRENT and perhaps `_` and a variant, each
with XLA's dump and its own print of its graphs, `edges.txt`. Every graph must be the same, edges
and priorities, cut as XLA's thunk sequence says and as the rules say without it. Then comes a table
of edges, those of them that the program does not ask for (those that only sharing bytes causes),
and bytes of temporaries: XLA's, ours of XLA's kernels, and ours of the module before XLA's passes,
PROGRAM/*/before_optimizations.txt or PROGRAMS/PROGRAM.hlo. Exits with 1 if any graph differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import hlo2graph
from hlo2graph.frontend.xla_dump import (
    build_thunks,
    find_dumps,
    parse_assignment,
    parse_printed,
    parse_sequence,
)
from hlo2graph.inspect.figures import bytes_text
from hlo2graph.inspect.xla_graph.graph import Mode, build_graphs
from hlo2graph.inspect.xla_graph.report import XlaReport, compare_printed, report_on
from hlo2graph.inspect.xla_graph.summary import Side, plan_side
from hlo2graph.program.thunks import Hazard

MODES = ("LHS", "CONCURRENT", "LHS_cublaslt", "CONCURRENT_cublaslt")
TARGET = "sm_90"


def read(folder: Path) -> tuple[XlaReport, list[str], int]:
    """Return what is to say of one dump, how XLA's print differs, and how many graphs it has."""
    (dump,) = find_dumps([folder])
    module = hlo2graph.parse(dump.optimized.read_text(), str(dump.optimized))
    buffers = parse_assignment(dump.assignment.read_text(), str(dump.assignment))
    thunks = build_thunks(module, buffers)
    printed = parse_sequence(dump.sequence.read_text()) if dump.sequence else None
    mode = Mode.CONCURRENT if folder.name.startswith("CONCURRENT") else Mode.LHS
    report = report_on(module.name, thunks, printed, buffers, mode)
    xla = parse_printed((folder / "edges.txt").read_text(), str(folder / "edges.txt"))
    wrong = [*compare_printed(report.graphs, xla), *report.notes]
    if len(xla) != len(report.graphs):
        wrong.append(f"XLA prints {len(xla)} graphs, not {len(report.graphs)}")
    alone = compare_printed(build_graphs(thunks, None, buffers, mode), xla)
    return report, [*wrong, *(f"without its sequence: {line}" for line in alone)], len(xla)


def check_graphs(dumps: Path, programs: Path | None = None) -> tuple[int, int]:
    """Print what differs, and the table; return how many dumps hold, and of how many."""
    held = total = graphs = 0
    rows: dict[str, dict[str, XlaReport]] = {}
    for edges in sorted(dumps.glob("*/*/edges.txt")):
        folder = edges.parent
        report, wrong, count = read(folder)
        rows.setdefault(folder.parent.name, {})[folder.name] = report
        held, total, graphs = held + (not wrong), total + 1, graphs + count
        for line in wrong:
            print(f"  {folder.parent.name} {folder.name}: {line}")
    print("\n".join(table(dumps, rows, programs)))
    print(f"{dumps}: {held} of {total} dumps hold, {graphs} graphs")
    return held, total


def table(
    dumps: Path, rows: dict[str, dict[str, XlaReport]], programs: Path | None
) -> Iterator[str]:
    """Yield the README's table: edges / false ones / bytes of temporaries."""
    names = [mode for mode in MODES if any(mode in reports for reports in rows.values())]
    yield f"| program | {' | '.join(names)} | ours, XLA's kernels | ours |"
    yield f"| --- |{' ---: |' * (len(names) + 2)}"
    for program, reports in rows.items():
        cells = [cell(reports[mode].sides[0]) if mode in reports else "" for mode in names]
        kernels = dumps / program / names[min(1, len(names) - 1)] / "after_optimizations.txt"
        cells.append(cell(planned(kernels)))
        before = unoptimized(dumps / program, programs)
        cells.append(cell(planned(before)) if before else "")
        yield f"| {program} | {' | '.join(cells)} |"


def cell(side: Side) -> str:
    shared = sum(side.by_hazard.get(hazard, 0) for hazard in (Hazard.REUSE, Hazard.INPLACE))
    false = f"{side.false} ({shared})" if shared else f"{side.false}"
    return f"{side.edges} / {false} / {bytes_text(side.temp_bytes)}"


def planned(path: Path) -> Side:
    return plan_side("", hlo2graph.plan(path.read_text(), filename=str(path), target=TARGET))


def unoptimized(folder: Path, programs: Path | None) -> Path | None:
    found = [*folder.glob("*/before_optimizations.txt")]
    if programs is not None:
        found.append(programs / f"{folder.name}.hlo")
    return next((path for path in found if path.exists()), None)


def main() -> int:
    dumps, *programs = map(Path, sys.argv[1:])
    held, total = check_graphs(dumps, *programs)
    return 0 if total and held == total else 1


if __name__ == "__main__":
    sys.exit(main())
