"""`hlo2graph pointers`: what arrays that move cost, by strategy."""

from __future__ import annotations

import click

from hlo2graph.cli.files import emit_report, modules_in, only, read_file
from hlo2graph.cli.options import file_argument, json_option, planning_options, seed_option
from hlo2graph.cli.paths import Written, is_svg
from hlo2graph.cli.programs import input_first, is_planned, plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.cli.run_options import elided_option
from hlo2graph.cli.voice import voice
from hlo2graph.options import PlanOptions


@click.command("pointers", short_help="Time each way to call a graph with arrays that move.")
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
@seed_option("Of the random arguments.")
@elided_option
@planning_options
@json_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=Written(),
    help="Write there in place of stdout; a name that ends with .svg draws the table.",
)
def command(
    file: str,
    moves: int,
    sets: int,
    seed: int,
    elided: str | None,
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

    A row has, of one call: `enqueue`, until it returns; `latency`, until its
    results are there, and the `mean` of that; `over best`, the latency over that
    of the best strategy but auto; `apart`, how many times as long the slowest of
    the three takes as the fastest; nodes that `updates` gave other addresses;
    how often a graph of other addresses was `ready`; and bytes `copied`. Of all:
    `graphs` held at the end, and what `learning`, the calls before, took beyond
    what as many take later.

    \b
    Examples:
      hlo2graph pointers model.hlo
      hlo2graph pointers model.hlo --moves 1000 --sets 16 --json pointers.json
      hlo2graph pointers model.hlo -o pointers.svg
    """
    from hlo2graph.backends.elided import fill_elided
    from hlo2graph.inspect.arrays import random_inputs
    from hlo2graph.inspect.pointers.lab import run_lab
    from hlo2graph.inspect.pointers.report import lab_json, lab_text
    from hlo2graph.inspect.pointers.svg import lab_svg
    from hlo2graph.pipeline import cuda_target
    from hlo2graph.program.one_device import caveats_of

    drawn = is_svg(output)
    whole = read_file(file)
    labs = []
    for part in [only(whole, "draw")] if drawn else modules_in(whole):
        with progress(part.filename) as shown:
            shown.say("plan")
            with input_first(part, planning, elided):
                target = cuda_target()
            options: PlanOptions = planning if is_planned(part) else {"target": target, **planning}
            plan = fill_elided(plan_of(part, **options), elided)
            for caveat in caveats_of(plan):
                voice().note(f"note: {caveat}")
            shown.say("call")
            args = random_inputs(plan.inputs, seed)
            labs.append(run_lab(plan, args, moves=moves, sets=sets))
    emit_report(
        lambda: [lab_json(lab) for lab in labs],
        lambda: lab_svg(labs[0]) if drawn else "\n\n".join(map(lab_text, labs)) + "\n",
        json_file,
        output,
    )
