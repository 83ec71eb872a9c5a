"""`hlo2graph budget`: what memory buys in concurrency and time."""

from __future__ import annotations

from pathlib import Path

import click

from hlo2graph.cli.files import Input, emit_report, modules_in, only, read_file
from hlo2graph.cli.options import file_argument, json_option
from hlo2graph.cli.paths import Written, is_svg
from hlo2graph.cli.programs import text_of, why_options
from hlo2graph.cli.progress import progress
from hlo2graph.options import FUSE, TARGETS, PlanOptions
from hlo2graph.program.device_figures import DEVICES

PICTURES = frozenset({".png", ".pdf", ".jpg", ".html"})  # that a curve is not drawn as


@click.command("budget")
@file_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=Written(),
    help="Write there in place of stdout; a name that ends with .svg draws the curve.",
)
@click.option(
    "--device",
    type=click.Choice(tuple(DEVICES)),
    help="The GPU that time is estimated for.  [default: a100 for a plan for sm_80, else h200]",
)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    help="What the plans are for; auto is what `run` would take here.  [default: auto, with "
    "--device that device's, of a .h2g file its own]",
)
@click.option(
    "--fuse",
    type=click.Choice(FUSE),
    help="Fusion of kernels.  [default: none for host, default for sm_NN]",
)
@json_option
def command(
    file: str,
    output: str | None,
    device: str | None,
    target: str | None,
    fuse: str | None,
    json_file: str | None,
) -> None:
    """Plan FILE with little memory and with much, and compare.

    Seven plans, from the least bytes of temporaries to the most: `serial`, which
    reuses bytes by program order and runs a chain, as XLA's mode LHS does;
    `packed`, the same placement for a graph; `reuse any` and `reuse 1`, which
    hand bytes over early, any number of times or once; `half`, which does so once
    it has grown half way; `default`, which shares bytes only where data flow
    orders the thunks, as XLA's mode CONCURRENT does; `apart`, which shares none
    but what is written in place (in the `sum of buffers` of `run` nothing is).
    `plan --max-buffer-reuse N` takes the smallest of several that reuse so often,
    `--memory-budget` one that is no larger than asked.
    For each: the arena, and how many times what is alive at once in the program
    order of the graph's plans it is (`of alive`; a chain, which writes more in
    place, may take less); edges, and those of them that the program does not ask
    for (`false`); the most thunks at one depth (`width`), the thunks on the
    longest path (`path`); and a time: bytes over bandwidth, operations over rate,
    and a node's latency, on one device that all share. It compares plans, and
    predicts no run.

    \b
    Examples:
      hlo2graph budget model.hlo
      hlo2graph budget model.hlo --device a100 -o curve.svg
      hlo2graph budget model.hlo --json - | jq '.points[] | [.arena_bytes, .seconds]'
    """
    from hlo2graph.inspect.budget.report import (
        BudgetReport,
        budget_json,
        budget_text,
        report_budget,
    )
    from hlo2graph.inspect.budget.svg import budget_svg
    from hlo2graph.pipeline import sweep

    if output is not None and Path(output).suffix.lower() in PICTURES:
        raise click.UsageError("the curve is drawn as SVG: name a file that ends with .svg")
    drawn = is_svg(output)
    reports: list[BudgetReport] = []
    target = target or (DEVICES[device].target if device else None)
    whole = read_file(file)
    for part in [only(whole, "draw")] if drawn else modules_in(whole):
        with progress("planning"):
            options = _options(part, target, fuse)
            plans = sweep(text_of(part), filename=part.filename, **options)
            reports.append(report_budget(plans, device))
    emit_report(
        lambda: [budget_json(report) for report in reports],
        lambda: budget_svg(reports[0]) if drawn else "\n".join(map(budget_text, reports)),
        json_file,
        output,
    )


def _options(part: Input, target: str | None, fuse: str | None) -> PlanOptions:
    """Return how to plan: as a .h2g file was planned, where nothing else is asked for."""
    made: PlanOptions = {"target": target or "auto"}
    if part.saved is not None and target is None:
        made = why_options(part, {})
    return {**made, "fuse": fuse} if fuse else made
