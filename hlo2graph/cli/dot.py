"""`hlo2graph dot`: the graph as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict, Unpack

import click

import hlo2graph
from hlo2graph.cli.files import dump_to, emit, modules_in, read_file, write_whole
from hlo2graph.cli.options import dump_option, file_argument, output_option, planning_options
from hlo2graph.cli.progress import progress
from hlo2graph.options import PlanOptions

TEXT = ("", ".dot", ".gv", ".txt")


class _Options(TypedDict):
    """What to draw; see inspect.dot."""

    depth: int | None
    edges: str
    computation: str | None
    limit: int | None


@click.command("dot")
@file_argument
@output_option
@click.option(
    "--depth",
    metavar="N",
    type=click.IntRange(min=0),
    help="Levels of loops and branches to open; 0 draws each as one node.  [default: all]",
)
@click.option(
    "--edges",
    type=click.Choice(["all", "data"]),
    default="all",
    show_default=True,
    help="Draw every edge, or those alone along which data flows.",
)
@click.option(
    "--computation",
    metavar="NAME",
    help="Draw only what is inside this loop or conditional: NAME, NAME/body, NAME/branch_0.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    help="Draw the first N thunks of each sequence.  [default: all]",
)
@planning_options
@dump_option
def command(
    file: str,
    output: str | None,
    planning: PlanOptions,
    dump: str | None,
    **options: Unpack[_Options],
) -> None:
    """Print the graph of FILE as DOT, each edge with its hazard and bytes.

    With -o, the file's suffix says what is written: .dot, or .svg, .png, .pdf,
    which Graphviz draws. No GPU is needed, whatever the target. Several modules
    give as many graphs.

    \b
    Examples:
      hlo2graph dot model.hlo -o model.svg
      hlo2graph dot model.hlo --target sm_90 -o model.dot
      hlo2graph dot model.hlo --computation while.3/body
    """
    from hlo2graph.frontend.thunks import is_thunk_sequence
    from hlo2graph.inspect.dot import dot
    from hlo2graph.inspect.render import render

    parts = modules_in(read_file(file))
    suffix = Path(output).suffix.lower() if output else ""
    if suffix not in TEXT and len(parts) > 1:
        raise click.UsageError(f"a {suffix} file holds one graph; FILE has several modules")
    graphs = []
    for number, part in enumerate(parts):
        observe = dump_to(dump, str(number) if len(parts) > 1 else "")
        name = part.filename
        with progress("planning"):
            known = is_thunk_sequence(part.text)
            program = part.text if known else hlo2graph.parse(part.text, name, verify=False)
            plan = hlo2graph.plan(program, filename=name, observe=observe, **planning)
        tables = "" if isinstance(program, str) else program.tables
        graphs.append(dot(plan, tables=tables, **options))
    if output is None or suffix in TEXT:
        emit("\n".join(graphs), output)
    else:
        with progress("drawing"):
            write_whole(output, render(graphs[0], suffix.removeprefix(".")))
