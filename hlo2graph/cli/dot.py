"""`hlo2graph dot`: the graph as a picture."""

from __future__ import annotations

import click

import hlo2graph
from hlo2graph.cli.files import dump_to, emit, modules_in, read_file
from hlo2graph.cli.options import dump_option, file_argument, output_option, planning_options
from hlo2graph.cli.progress import progress
from hlo2graph.options import PlanOptions


@click.command("dot")
@file_argument
@output_option
@planning_options
@dump_option
def command(file: str, output: str | None, planning: PlanOptions, dump: str | None) -> None:
    """Print the graph of FILE as DOT, each edge with its hazard and bytes.

    No GPU is needed, whatever the target. Several modules give as many graphs.

    \b
    Examples:
      hlo2graph dot model.hlo -o model.dot
      hlo2graph dot model.hlo --target sm_90 | dot -Tsvg -o model.svg
    """
    from hlo2graph.inspect.dot import format_dot

    parts = modules_in(read_file(file))
    graphs = []
    for number, part in enumerate(parts):
        observe = dump_to(dump, str(number) if len(parts) > 1 else "")
        with progress("planning"):
            plan = hlo2graph.plan(part.text, filename=part.filename, observe=observe, **planning)
        graphs.append(format_dot(plan))
    emit("\n".join(graphs), output)
