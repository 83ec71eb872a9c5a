"""`hlo2graph plan`: thunks, slices, edges and allocations."""

from __future__ import annotations

from typing import Any

import click

from hlo2graph.cli.files import dump_to, emit_report, joined, modules_in, read_file
from hlo2graph.cli.options import (
    dump_option,
    file_argument,
    json_option,
    output_option,
    planning_options,
)
from hlo2graph.cli.programs import plan_of, text_of, why_options
from hlo2graph.cli.progress import progress
from hlo2graph.options import PlanOptions


@click.command("plan")
@file_argument
@output_option
@planning_options
@click.option("--why", is_flag=True, help="Say why kernels are what they are, not what they do.")
@json_option
@dump_option
def command(
    file: str,
    output: str | None,
    planning: PlanOptions,
    why: bool,
    json_file: str | None,
    dump: str | None,
) -> None:
    """Print the plan of FILE: thunks, slices, edges, allocations.

    The text is a thunk sequence, which `run`, `dot` and `plan` read back. No
    GPU is needed, whatever the target.

    \b
    Examples:
      hlo2graph plan model.hlo
      hlo2graph plan model.hlo --target sm_90 -o model.thunks
      hlo2graph plan model.hlo --json - | jq .stats
      hlo2graph plan model.hlo --memory-budget 64MiB
      hlo2graph plan model.hlo --target sm_90 --why
    """
    from hlo2graph.inspect.why import why_json, why_text
    from hlo2graph.program.text.plan import format_plan

    inputs = modules_in(read_file(file))
    plans, reasons = [], []
    for number, part in enumerate(inputs):
        see = dump_to(dump, str(number) if len(inputs) > 1 else "")
        with progress("planning"):
            if why:
                from hlo2graph.pipeline import why as reasons_of

                reasons.append(
                    reasons_of(text_of(part), filename=part.filename, **why_options(part, planning))
                )
            if why and not (json_file or dump):
                continue  # only fusion is asked about: assigning buffers would double the time
            plans.append(plan_of(part, observe=see, **planning))

    def documents() -> list[dict[str, Any]]:
        found = [p.to_json() for p in plans]
        for document, reason in zip(found, reasons, strict=False):
            document["fusion"] = why_json(reason)
        return found

    def text() -> str:
        return joined(map(why_text, reasons) if why else map(format_plan, plans))

    emit_report(documents, text, json_file, output)
