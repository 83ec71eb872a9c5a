"""`hlo2graph diff`: what is different between two modules or plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hlo2graph.cli.files import Input, emit_report, only, read_file
from hlo2graph.cli.options import json_option, output_option, planning_options
from hlo2graph.cli.paths import Named
from hlo2graph.cli.programs import is_planned, plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.cli.voice import voice
from hlo2graph.options import PlanOptions

if TYPE_CHECKING:
    from hlo2graph.program.plan import Plan


@click.command("diff")
@click.argument("before", metavar="A", type=Named())
@click.argument("after", metavar="B", type=Named())
@output_option
@planning_options
@click.option("--all", "whole", is_flag=True, help="List every change, not only the first.")
@click.option("--exit-code", is_flag=True, help="End with exit code 1 where A and B differ.")
@json_option
def command(
    before: str,
    after: str,
    output: str | None,
    planning: PlanOptions,
    whole: bool,
    exit_code: bool,
    json_file: str | None,
) -> None:
    """Say what is different from plan A to plan B.

    A and B are HLO, each planned with the options given, or thunk sequences, as
    `plan` writes them: so two settings for one module can be compared too. Thunks
    are matched by name and by what they compute, whatever they are called, and
    then by their neighbours. Listed are thunks removed, added, changed, moved in
    program order and renamed, and edges lost and gained, each with whether the
    other plan orders the two all the same; above them edges, width, longest path
    and memory before and after. Names and places in memory alone are no
    difference. The text is the same on every machine, so that it does for golden
    files; with --exit-code a difference is exit code 1.

    \b
    Examples:
      hlo2graph diff before.hlo after.hlo --target sm_90
      hlo2graph diff golden.thunks model.hlo --exit-code
      hlo2graph plan model.hlo --max-buffer-reuse -1 | hlo2graph diff model.hlo -
    """
    from hlo2graph.inspect.diff.plans import diff_plans
    from hlo2graph.inspect.diff.report import diff_json, diff_text

    if before == after == "-":
        raise click.UsageError("only one of A and B can be stdin")
    inputs = [only(read_file(path), "compare") for path in (before, after)]
    if planning and all(map(is_planned, inputs)):
        raise click.UsageError("A and B are planned already; no planning option applies to them")
    plans = [_plan(given, planning) for given in inputs]
    diff = diff_plans(*plans)
    if diff.settings:
        _advise(inputs, plans)
    emit_report(lambda: [diff_json(diff)], lambda: diff_text(diff, whole=whole), json_file, output)
    if exit_code and diff.differ:
        voice().annotate(
            f"{before} and {after} differ:\n{diff_text(diff, whole=whole)}", file=after
        )
        click.get_current_context().exit(1)


def _plan(given: Input, planning: PlanOptions) -> Plan:
    """Return the plan of a text; what is planned already takes no options."""
    options: PlanOptions = {} if is_planned(given) else planning
    with progress("planning"):
        return plan_of(given, **options)


def _advise(inputs: Sequence[Input], plans: Sequence[Plan]) -> None:
    """Say how the one that is HLO is planned as the other was."""
    for letter, given, other in zip("BA", reversed(inputs), plans, strict=True):
        if not is_planned(given):
            flags = f"--target {other.target} --fuse {other.fuse}"
            voice().note(f"note: {flags} plans {letter} as the other was planned")
