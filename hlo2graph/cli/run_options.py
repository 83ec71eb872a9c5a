"""The options of `run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

import click

from hlo2graph.cli import units
from hlo2graph.cli.options import given_of, seed_option
from hlo2graph.cli.paths import Named, Written
from hlo2graph.options import (
    BACKENDS,
    MATMUL_PRECISIONS,
    POINTERS,
    REFERENCES,
    TEMPORARIES,
    PlanOptions,
)

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.choices import CudaOptions

MOST_THREADS = 1024  # more than that the system may refuse, and no program is as wide
F = TypeVar("F", bound=Callable[..., Any])


class RunOptions(TypedDict):
    """The flags of `run` that are for each module alike."""

    planning: PlanOptions
    backend: str
    matmul_precision: str
    elided: str | None
    given: tuple[str, ...]
    inputs: str | None
    seed: int
    save_outputs: str | None
    reference: str
    abs_error: float | None
    rel_error: float | None
    warmup: float
    duration: float
    iterations: int | None
    percentile: tuple[float, ...]
    threads: int | None
    cold_l2: bool
    unroll_loops: str
    pointers: str
    capture: str
    temporaries: str
    profile: str | None
    trace: str | None


matmul_precision_option = click.option(
    "--matmul-precision",
    type=click.Choice(MATMUL_PRECISIONS),
    default="default",
    show_default=True,
    help="What dots may round to on cuda; the host computes in full.",
)
elided_option = click.option(
    "--elided",
    metavar="zeros|random:SEED",
    help="Values for constants that the text left out as `{...}`.  [default: refuse to run]",
)
unroll_loops_option = click.option(
    "--unroll-loops",
    metavar="auto|N|never",
    default="auto",
    show_default=True,
    help="On cuda, write loops of a known trip count out in the graph: short ones whole and "
    "longer ones some rounds at a time, those of at most N rounds, none.",
)
pointers_option = click.option(
    "--pointers",
    type=click.Choice(POINTERS),
    default="copy",
    show_default=True,
    help="On cuda, what a call does for device arrays that lie elsewhere than at the one "
    "before; `run` checks it with arrays that move.",
)
capture_option = click.option(
    "--capture",
    metavar="POLICY",
    default="all",
    show_default=True,
    help="On cuda, which thunks graphs hold: all; temps, those that touch nothing that a caller "
    "may move; loops:N, loops of a known trip count over N; KIND,... or -KIND,... (while, library, "
    "...). min:N asks for graphs of N thunks at least. The others are enqueued one by one.",
)
temporaries_option = click.option(
    "--temporaries",
    type=click.Choice(TEMPORARIES),
    default="persistent",
    show_default=True,
    help="On cuda, where temporaries live: in an arena of their own, in memory that the graph "
    "allocates and frees, or in one arena for all executables that say so.",
)

_OPTIONS = (
    click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default="auto",
        show_default=True,
        help="What runs it; auto is the best there is here.",
    ),
    click.option(
        "--input",
        "given",
        metavar="NAME=@FILE.npy",
        multiple=True,
        help="An array for one parameter, by its name or argN; may be repeated.",
    ),
    click.option(
        "--inputs",
        metavar="FILE.npz",
        type=Named(),
        help="Arrays by parameter name or argN (tuple leaves in order).",
    ),
    seed_option("Of the random arrays for parameters not given, and of random orders."),
    click.option(
        "--save-outputs",
        metavar="FILE.npz",
        type=Written(stdout=False),
        help="Write the results as out0, out1, ...; bfloat16, float8 and int4, which .npz files "
        "cannot say, as unsigned integers of the same bytes.",
    ),
    click.option(
        "--reference",
        type=click.Choice(REFERENCES),
        default="host",
        show_default=True,
        help="What to compare with: the HLO evaluated as written, XLA:CPU (needs jax; signs of "
        "singular vectors and eigenvectors may be others), or nothing: then nothing is checked.",
    ),
    click.option(
        "--abs-error",
        metavar="X",
        type=units.Number(min=0),
        help="Absolute tolerance for floats.  [default: by element type]",
    ),
    click.option(
        "--rel-error",
        metavar="X",
        type=units.Number(min=0),
        help="Relative tolerance for floats.  [default: by element type]",
    ),
    click.option(
        "--warmup",
        metavar="MS",
        type=units.seconds("ms"),
        default="100",
        show_default=True,
        help="Warm-up of each mode; also 1s, 500us.",
    ),
    click.option(
        "--duration",
        metavar="S",
        type=units.seconds("s"),
        default="1",
        show_default=True,
        help="Measuring time of all modes together; also 500ms. 0 measures nothing.",
    ),
    click.option(
        "--iterations",
        metavar="N",
        type=click.IntRange(min=1),
        help="Rounds to measure, at most.  [default: as many as --duration lets]",
    ),
    click.option(
        "--percentile",
        metavar="P,P,...",
        type=units.percentiles,
        default="50,90,99",
        show_default=True,
        help="Which of latency the table has.",
    ),
    click.option(
        "--threads",
        metavar="N",
        type=click.IntRange(1, MOST_THREADS),
        help="Threads of the host's pool.  [default: as many as cores, at least 2]",
    ),
    matmul_precision_option,
    elided_option,
    unroll_loops_option,
    pointers_option,
    capture_option,
    temporaries_option,
    click.option(
        "--cold-l2", is_flag=True, help="On cuda, spoil the L2 cache before each measured run."
    ),
    click.option(
        "--profile",
        metavar="nodes",
        type=click.Choice(("nodes",)),
        help="List how often and how long each node of the graph ran, by HLO name; the 40 that "
        "took longest, --json FILE all.",
    ),
    click.option(
        "--trace",
        metavar="F.json",
        type=Written(stdout=False),
        help="Write when each node ran, lane by lane, with arrows for edges and the bytes alive: a "
        "trace for ui.perfetto.dev; list the nodes too, as --profile does.",
    ),
    click.option(
        "--fail-if-slower",
        metavar="X",
        type=units.Number(min=0, min_open=True),
        help="Exit with 1 where the graph takes over X times as long as the serial order.",
    ),
)


def given_choices(options: Mapping[str, Any]) -> CudaOptions:
    """Return the choices about a GPU that the command line gave, defaults left out."""
    from hlo2graph.backends.cuda.choices import CudaOptions

    named = set(given_of(options)) & set(CudaOptions.__annotations__)
    return cast(CudaOptions, {name: options[name] for name in named})


def run_options(command: F) -> F:
    """Add the flags that only `run` has."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
