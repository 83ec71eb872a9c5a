"""`hlo2graph pointers`: what arrays that move cost, by strategy."""

from __future__ import annotations

import json

import click

from hlo2graph.cli.files import emit, modules_in, read_file
from hlo2graph.cli.options import file_argument, json_option, planning_options
from hlo2graph.cli.programs import is_planned, plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.cli.voice import voice
from hlo2graph.options import PlanOptions


@click.command("pointers")
@file_argument
@click.option(
    "--moves",
    metavar="K",
    type=click.IntRange(min=40),
    default=200,
    show_default=True,
    help="Calls of each executable that count under each pattern; as many at least come before.",
)
@click.option(
    "--sets",
    metavar="S",
    type=click.IntRange(min=2),
    default=4,
    show_default=True,
    help="Sets of arrays that `rotate` goes round.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the arguments."
)
@planning_options
@json_option
@click.option(
    "-o",
    "--output",
    metavar="F",
    help="Write there in place of stdout; a name that ends with .svg draws the table.",
)
def command(
    file: str,
    moves: int,
    sets: int,
    seed: int,
    planning: PlanOptions,
    json_file: str | None,
    output: str | None,
) -> None:
    """Call FILE with arrays that move, and time each way to deal with that.

    A graph holds the addresses of its arrays. Where a caller brings others,
    they are copied (copy), the graph's nodes are updated (update), another
    graph is taken (cache), the graph is built again and updated as a whole
    (recapture), kernels read the addresses from a table (table), or whichever
    costs least is done (auto). Arrays stay, rotate among S sets, or are new at
    each call. Three executables of each strategy take turns; the interval of a
    ratio counts in how much they differ. Needs a GPU.

    \b
    Examples:
      hlo2graph pointers model.hlo
      hlo2graph pointers model.hlo --moves 1000 --sets 16 --json pointers.json
      hlo2graph pointers model.hlo -o pointers.svg
    """
    from hlo2graph.inspect.arrays import random_inputs
    from hlo2graph.inspect.pointers.lab import run_lab
    from hlo2graph.inspect.pointers.report import lab_json, lab_text
    from hlo2graph.inspect.pointers.svg import lab_svg
    from hlo2graph.pipeline import cuda_target
    from hlo2graph.program.one_device import caveats_of

    target = cuda_target()
    labs = []
    for part in modules_in(read_file(file)):
        with progress(part.filename) as shown:
            shown.say("plan")
            if not is_planned(part):
                planning = {"target": target, **planning}
            plan = plan_of(part, **planning)
            for caveat in caveats_of(plan):
                voice().note(f"note: {caveat}")
            shown.say("call")
            args = random_inputs(plan.inputs, seed)
            labs.append(run_lab(plan, args, moves=moves, sets=sets))
    if json_file is not None:
        documents = [lab_json(lab) for lab in labs]
        emit(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2), json_file)
    drawn = output is not None and output.endswith(".svg")
    if drawn and len(labs) > 1:
        raise click.UsageError(f"FILE holds {len(labs)} modules; draw one")
    if drawn or json_file != "-":
        emit(lab_svg(labs[0]) if drawn else "\n\n".join(map(lab_text, labs)) + "\n", output)
