"""The options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from hlo2graph.cli import units
from hlo2graph.cli.paths import Named, Written
from hlo2graph.options import FUSE, SCHEDULES, TARGETS, PlanOptions

F = TypeVar("F", bound=Callable[..., Any])

file_argument = click.argument("file", metavar="FILE", type=Named())

output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=Written(),
    help="Write there, whole or not at all, in place of stdout.",
)
json_option = click.option(
    "--json",
    "json_file",
    metavar="FILE|-",
    type=Written(),
    is_flag=False,
    flag_value="-",
    help="Write JSON too; `-` prints it on stdout in place of the text.",
)
dump_option = click.option(
    "--dump",
    metavar="DIR",
    type=click.Path(file_okay=False),
    is_eager=True,  # known before files that may be written there
    help="Write the text after every stage to DIR/NN_stage.txt.",
)


def seed_option(what: str) -> Callable[[F], F]:
    """Return the flag that chooses the random numbers of a command."""
    return click.option(
        "--seed",
        metavar="N",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help=what,
    )


def given_of(options: Iterable[str]) -> list[str]:
    """Return the names of those options that the command line gave."""
    source = click.get_current_context().get_parameter_source
    return [name for name in options if source(name) is not ParameterSource.DEFAULT]


_planning = (
    click.option(
        "--fuse",
        type=click.Choice(FUSE),
        help="Fusion of kernels.  [default: none for host, default for sm_NN]",
    ),
    click.option(
        "--schedule",
        type=click.Choice(SCHEDULES),
        help="Order by data-flow hazards alone, or each thunk after the one before."
        "  [default: concurrent]",
    ),
    click.option(
        "--memory-budget",
        metavar="BYTES",
        type=units.size,
        help="Arena size to aim for at the price of `reuse` edges; 4096, 64KiB, 1.5MB."
        "  [default: no limit]",
    ),
    click.option(
        "--max-buffer-reuse",
        metavar="N",
        type=click.IntRange(min=-1),
        help="How often the same bytes may go to another value early, at the price of `reuse` "
        "edges; 0 never, -1 any number of times.  [default: 0]",
    ),
)


def planning_options(command: F, target: str = "auto") -> F:
    """Add the flags that decide a plan; those given come as one argument, `planning`.

    `target` is what the command takes where none is given.
    """
    for_target = click.option(
        "--target",
        type=click.Choice(TARGETS),
        help=f"What the plan is for; auto is what `run` would take here.  [default: {target}]",
    )

    @wraps(command)
    def bundled(**options: object) -> object:
        taken = {name: options.pop(name) for name in PlanOptions.__annotations__}
        given = {name: value for name, value in taken.items() if value is not None}
        return command(planning=given, **options)

    for option in reversed((for_target, *_planning)):
        bundled = option(bundled)
    return cast(F, bundled)
