"""`hlo2graph check`: prove a plan, and run it in other orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlo2graph.cli.files import emit_report, modules_in, read_file
from hlo2graph.cli.options import (
    file_argument,
    json_option,
    output_option,
    planning_options,
    seed_option,
)
from hlo2graph.cli.programs import plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.cli.voice import voice
from hlo2graph.options import PlanOptions

if TYPE_CHECKING:
    from hlo2graph.inspect.check.report import CheckReport

MARKED = 10  # findings of a plan that annotations show: as many as GitHub shows of a step


@click.command("check", short_help="Prove that the plan of FILE orders what it must, and no more.")
@file_argument
@output_option
@click.option(
    "--runs",
    metavar="N",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Runs in random orders, and as many on a pool of threads; 0 proves and runs nothing.",
)
@seed_option("Of the random inputs and orders.")
@click.option(
    "--elided",
    metavar="zeros|random:SEED",
    help="Values for constants that the text left out as `{...}`.  [default: prove only]",
)
@planning_options
@json_option
def command(
    file: str,
    output: str | None,
    runs: int,
    seed: int,
    elided: str | None,
    planning: PlanOptions,
    json_file: str | None,
) -> None:
    """Prove the plan of FILE: what must be ordered is, and nothing else.

    FILE is HLO, which is planned first, or a thunk sequence from anywhere. The
    proof shares no code with the planner: every two thunks that touch the same
    bytes, one of them writing, must lie on a path; no edge may follow from
    others; nothing may be read before it is written; parameters that are not
    donated stay as they are; loops and branches too. Then it runs with NumPy, in
    random orders that the edges allow and over poisoned memory, and must give
    program order's bits. No GPU is needed, whatever the target. Exit code 1
    where anything is wrong, with the thunks and bytes named.

    \b
    Examples:
      hlo2graph check model.hlo
      hlo2graph check model.hlo --target sm_90 --memory-budget 64MiB
      hlo2graph check model.thunks --runs 100 --json -
    """
    from hlo2graph.inspect.check.report import check_json, check_text
    from hlo2graph.inspect.check.session import check_plan

    reports = []
    for part in modules_in(read_file(file)):
        with progress("planning"):
            plan = plan_of(part, **planning)
        with progress("checking"):
            reports.append(check_plan(plan, runs=runs, seed=seed, elided=elided))
        for caveat in reports[-1].caveats:
            voice().note(f"note: {caveat}")
    emit_report(
        lambda: [check_json(r) for r in reports],
        lambda: "\n".join(check_text(r) for r in reports),
        json_file,
        output,
    )
    if not all(r.ok for r in reports):
        for report in reports:
            _annotate(report, file)
        click.get_current_context().exit(1)


def _annotate(report: CheckReport, file: str) -> None:
    """Mark the thunks at fault, and on the file what no thunk is alone to blame for."""
    for finding in report.proof.findings[:MARKED]:
        voice().annotate(str(finding), finding.span, file)
    for run in report.runs:
        if not run.ok:
            voice().annotate(
                f"{report.plan.name}: {run.how}: other bits than program order", file=file
            )
