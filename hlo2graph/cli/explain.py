"""`hlo2graph explain`: why A runs before B, or that it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hlo2graph.cli.files import emit_report, only, read_file
from hlo2graph.cli.options import file_argument, json_option, output_option, planning_options
from hlo2graph.cli.programs import module_of, plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.cli.run_options import capture_option
from hlo2graph.options import PlanOptions

if TYPE_CHECKING:
    from hlo2graph.hlo import Module
    from hlo2graph.inspect.explain import Answer
    from hlo2graph.program.plan import Plan

QUESTIONS = ("critical-path", "false-edges", "why-not-graph")


@click.command("explain", short_help="Say why one thunk of FILE runs before another, or does not.")
@file_argument
@click.argument("thunks", metavar="[A B]", nargs=-1)
@click.option("--critical-path", is_flag=True, help="List the longest path's thunks.")
@click.option(
    "--false-edges",
    is_flag=True,
    help="List the edges that only saving memory or the schedule asked for, and their price.",
)
@click.option(
    "--why-not-graph",
    is_flag=True,
    help="List what a CUDA graph of FILE would not hold, and why.",
)
@capture_option
@output_option
@planning_options
@json_option
def command(
    file: str,
    thunks: tuple[str, ...],
    capture: str,
    output: str | None,
    planning: PlanOptions,
    json_file: str | None,
    **asked: bool,
) -> None:
    """Say why thunk A of FILE runs before thunk B, or that they are unordered.

    The answer is the path of edges that orders them: each with its hazard, its
    bytes and whose they are, whether the program asks for it or only sharing
    memory does, and what being rid of it would cost. A and B are names of
    thunks, their ids in the plan (t3), paths (loop/body/add.1), or instructions
    that a kernel holds. FILE holds one module, or a thunk sequence.

    \b
    Examples:
      hlo2graph explain model.hlo dot.3 reduce.7
      hlo2graph explain model.hlo --critical-path --target sm_90
      hlo2graph explain model.hlo --false-edges --max-buffer-reuse -1
      hlo2graph explain model.hlo --why-not-graph --capture temps,min:5
    """
    questions = [name for name in QUESTIONS if asked[name.replace("-", "_")]]
    if len(questions) > 1:
        raise click.UsageError(f"ask one question: {' or '.join(f'--{q}' for q in questions)}")
    question = questions[0] if questions else None
    if (question is None) == (not thunks) or len(thunks) not in (0, 2):
        raise click.UsageError("ask about two thunks, A and B, or give one of the options")
    if capture != "all" and question != QUESTIONS[2]:
        raise click.UsageError("--capture is for --why-not-graph")
    part = only(read_file(file), "ask about")
    with progress("planning"):
        module = module_of(part)
        plan = plan_of(part, module, **planning)
    answer = _answer(plan, thunks, question, module, capture)
    emit_report(lambda: [answer.json], lambda: str(answer), json_file, output)


def _answer(
    plan: Plan,
    thunks: tuple[str, ...],
    question: str | None,
    module: Module | None,
    capture: str,
) -> Answer:
    from hlo2graph.inspect import explain

    tables = module.tables if module else ""
    match question:
        case "critical-path":
            return explain.explain_critical_path(plan, tables)
        case "false-edges":
            return explain.explain_false_edges(plan, tables)
        case "why-not-graph":
            return explain.explain_left_out(plan, capture)
        case _:
            return explain.explain_pair(plan, thunks[0], thunks[1], module)
