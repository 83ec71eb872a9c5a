"""`hlo2graph compile`: a program to a file that runs without being compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from hlo2graph.cli.files import Input, only, read_file
from hlo2graph.cli.options import file_argument, planning_options
from hlo2graph.cli.paths import Written
from hlo2graph.cli.programs import module_of, plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.cli.run_options import (
    capture_option,
    elided_option,
    given_choices,
    matmul_precision_option,
    pointers_option,
    temporaries_option,
    unroll_loops_option,
)
from hlo2graph.options import PlanOptions

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.choices import CudaOptions
    from hlo2graph.program.plan import Plan


def _arches(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...]:
    from hlo2graph.cli.kernels import ARCH

    names = tuple(text.split(",")) if text else ()
    for name in names:
        if not ARCH.fullmatch(name):
            raise click.BadParameter(f"{name!r} is no architecture, as sm_80 and sm_90 are")
    return names


@click.command("compile")
@file_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE.h2g",
    type=Written(stdout=False),
    required=True,
    help="Write there, whole or not at all.",
)
@click.option(
    "--arch",
    "arches",
    metavar="sm_NN,...",
    callback=_arches,
    help="The GPUs that kernels are compiled for.  [default: the one here, or the target]",
)
@planning_options
@matmul_precision_option
@elided_option
@unroll_loops_option
@pointers_option
@capture_option
@temporaries_option
def command(
    file: str,
    output: str,
    arches: tuple[str, ...],
    planning: PlanOptions,
    elided: str | None,
    **choices: Unpack[CudaOptions],
) -> None:
    """Compile FILE to one file that any command takes in its place.

    It holds the plan, the module that it was made of, constants, and for a GPU
    the kernels' machine code, for several architectures if you like; `run`,
    `check`, `dot` and h2g.load start from it without parsing, planning or
    compiling. No GPU is needed: with --target sm_90 the file is for one that is
    elsewhere. Whether cuBLASLt runs matrix products is decided there. A file of
    another format version, for another GPU, cut off or damaged is refused.

    \b
    Examples:
      hlo2graph compile model.hlo -o model.h2g
      hlo2graph compile model.hlo --target sm_90 --arch sm_90,sm_100 -o model.h2g
      hlo2graph run model.h2g --inputs x.npz
      hlo2graph plan model.h2g --json - | jq .stats
    """
    from hlo2graph.backends.cuda.choices import Choices
    from hlo2graph.backends.elided import fill_elided, fill_module
    from hlo2graph.saved.choices import checked, options_of
    from hlo2graph.saved.writing import save

    chosen = checked(replace(Choices(), **choices))
    part = only(read_file(file), "compile")
    if part.saved is not None:
        chosen = replace(part.saved.choices, **given_choices(choices))
    with progress("planning"):
        module = module_of(part)
        plan = fill_elided(plan_of(part, module, **_with_target(part, planning)), elided)
    wanted = _checked(plan, arches or _arch_here(part, planning))
    with progress("compiling"):
        save(
            plan,
            output,
            module=fill_module(module, elided) if module and elided else module,
            arches=wanted,
            **options_of(chosen),
        )
    if Path(output).is_file():  # a pipe may be stdout
        click.echo(_summary(output, plan, wanted))


def _with_target(part: Input, planning: PlanOptions) -> PlanOptions:
    """Return the planning options, the target that `run` would take here among them."""
    from hlo2graph.cli.programs import is_planned
    from hlo2graph.pipeline import machine_for

    return planning if is_planned(part) else {"target": machine_for("auto"), **planning}


def _arch_here(part: Input, planning: PlanOptions) -> tuple[str, ...]:
    """Return the GPU that is here, where the program is to be compiled for what is here."""
    from hlo2graph.cli.programs import is_planned
    from hlo2graph.pipeline import machine_for

    if is_planned(part) or planning.get("target", "auto") != "auto":
        return ()
    if machine_for("auto") == "host":
        return ()
    from hlo2graph.backends.cuda.driver import open_device

    return (open_device().arch,)


def _checked(plan: Plan, arches: tuple[str, ...]) -> tuple[str, ...]:
    """Return the architectures to compile for; refuse what could not run."""
    if plan.target == "host":
        from hlo2graph.backends.host.executable import check_support

        if arches:
            raise click.UsageError(f"--arch: {plan.name} is planned for the host, give --target")
        check_support(plan)
        return ()
    from hlo2graph.backends.cuda.prepared import number_of

    for arch in arches:
        if number_of(arch) < number_of(plan.target):
            raise click.UsageError(f"--arch {arch} is older than the plan's target {plan.target}")
    return arches or (plan.target,)


def _summary(output: str, plan: Plan, arches: tuple[str, ...]) -> str:
    from hlo2graph.inspect.figures import bytes_text, in_all, plural
    from hlo2graph.program.stats import plan_stats

    stats = plan_stats(plan)
    counts = f"{plural(stats.nodes, 'thunk')}, {plural(stats.edges, 'edge')}{in_all(stats)}"
    size = bytes_text(Path(output).stat().st_size)
    code = f", kernels for {', '.join(arches)}" if arches else ""
    return f"{output}   {size}: {plan.name} for {plan.target}{code}; {counts}"
