"""The options of `dot`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypedDict, TypeVar, cast

import click

from hlo2graph.cli.paths import Named

F = TypeVar("F", bound=Callable[..., Any])
STAGES = ("hlo", "thunks", "graph")


class DotOptions(TypedDict):
    """What to draw, and how; see inspect.picture."""

    stage: str
    depth: int | None
    edges: str
    computation: str | None
    around: str | None
    hops: int | None
    fold: bool
    limit: int | None
    color: str | None
    times: str | None
    unroll_loops: str
    driver: bool


_OPTIONS = (
    click.option(
        "--stage",
        type=click.Choice(STAGES),
        default="thunks",
        show_default=True,
        help="Draw the module's instructions, the plan's thunks, or the nodes that the CUDA graph "
        "gets, with loops written out and conditional bodies.",
    ),
    click.option(
        "--depth",
        metavar="N",
        type=click.IntRange(min=0),
        help="Levels of loops and branches to open; 0 draws each as one node.  [default: all]",
    ),
    click.option(
        "--edges",
        type=click.Choice(["all", "data"]),
        default="all",
        show_default=True,
        help="Draw every edge, or those alone along which data flows.",
    ),
    click.option(
        "--computation",
        metavar="NAME",
        help="Draw only what is inside this loop or conditional: NAME, NAME/body, NAME/branch_0; "
        "with --stage hlo, only this computation.",
    ),
    click.option(
        "--around",
        metavar="NAME",
        help="Draw only what is near this thunk, or the one that holds this instruction.",
    ),
    click.option(
        "--hops",
        metavar="N",
        type=click.IntRange(min=0),
        help="How many edges from --around to go, either way.  [default: 2]",
    ),
    click.option(
        "--fold", is_flag=True, help="Draw layers that repeat once, with how often they do."
    ),
    click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(min=1),
        help="Draw the first N nodes of each sequence, and say how many there are more."
        "  [default: all]",
    ),
    click.option(
        "--color",
        type=click.Choice(["kind", "time"]),
        help="Colour nodes by what they are or by how long they take.  [default: kind, with "
        "--times time]",
    ),
    click.option(
        "--times",
        metavar="F.json",
        type=Named(),
        help="Times of nodes, from `run --trace F.json` or `run --profile nodes --json F.json`."
        "  [default: an estimate]",
    ),
    click.option(
        "--unroll-loops",
        metavar="auto|N|never",
        default="auto",
        show_default=True,
        help="As for `run`; for --stage graph and --driver.",
    ),
    click.option(
        "--driver",
        is_flag=True,
        help="Print the driver's own drawing of the graph, which takes a GPU.",
    ),
)


def dot_options(command: F) -> F:
    """Add the flags that only `dot` has; they come as one argument, `options`."""

    @wraps(command)
    def bundled(**given: object) -> object:
        options = {name: given.pop(name) for name in DotOptions.__annotations__}
        return command(options=options, **given)

    for option in reversed(_OPTIONS):
        bundled = option(bundled)
    return cast(F, bundled)
