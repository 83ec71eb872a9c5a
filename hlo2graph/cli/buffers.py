"""`hlo2graph buffers`: where every value lives, and what the memory is for."""

from __future__ import annotations

import click

from hlo2graph.cli.files import emit_report, modules_in, read_file
from hlo2graph.cli.options import file_argument, json_option, output_option, planning_options
from hlo2graph.cli.programs import plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.options import PlanOptions


@click.command("buffers")
@file_argument
@output_option
@planning_options
@click.option("--all", "whole", is_flag=True, help="List every value, not only the largest.")
@json_option
def command(
    file: str, output: str | None, planning: PlanOptions, whole: bool, json_file: str | None
) -> None:
    """Show what memory FILE takes, who owns it, and when.

    First the arena, which holds all temporaries; what is alive at once when the
    plan runs in program order, each buffer rounded up to 256 bytes, which an
    arena for these buffers cannot go below; and the sum that the values would
    take each on its own, nothing written in place. Then the thunk at which most
    bytes are live, and the values that hold them; each input-output alias,
    honoured or why not; and every allocation with its values over program order:
    from the thunk that makes a value to the last that reads it. FILE is HLO, or a
    thunk sequence, of which names are those of thunks.

    \b
    Examples:
      hlo2graph buffers model.hlo
      hlo2graph buffers model.hlo --memory-budget 64MiB --all
      hlo2graph buffers model.hlo --target sm_90 --json - | jq .peak
    """
    from hlo2graph.inspect.buffers.report import buffers_json, buffers_text, report_buffers

    reports = []
    for part in modules_in(read_file(file)):
        with progress("planning"):
            plan = plan_of(part, **planning)
            reports.append(report_buffers(plan))
    emit_report(
        lambda: [buffers_json(r) for r in reports],
        lambda: "\n".join(buffers_text(r, whole=whole) for r in reports),
        json_file,
        output,
    )
