"""`hlo2graph kernels`: the CUDA C++ that a plan's kernels are, or what NVRTC makes of it."""

from __future__ import annotations

import re
import sys
from functools import partial

import click

from hlo2graph.cli.files import Input, emit, joined, modules_in, only, read_file, write_whole
from hlo2graph.cli.options import file_argument, output_option, planning_options
from hlo2graph.cli.programs import is_planned, plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.options import PlanOptions

ARCH = re.compile(r"sm_\d{2,3}[af]?")


def _arch(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text is not None and not ARCH.fullmatch(text):
        raise click.BadParameter(f"{text!r} is no architecture, as sm_80 and sm_90 are")
    return text


@click.command("kernels")
@file_argument
@output_option
@click.option("--ptx", is_flag=True, help="Print PTX.")
@click.option("--cubin", is_flag=True, help="Write a cubin, to --output or a pipe.")
@click.option(
    "--arch",
    metavar="sm_NN",
    callback=_arch,
    help="The GPU that --ptx and --cubin are for.  [default: sm_90]",
)
@partial(planning_options, target="sm_90")
def command(
    file: str, output: str | None, ptx: bool, cubin: bool, arch: str | None, planning: PlanOptions
) -> None:
    """Print the CUDA C++ of FILE's kernels.

    No GPU is needed. Kernels are named after the HLO instructions they run;
    those whose computations are equal share one. What they include lies in
    hlo2graph/backends/cuda/include.

    \b
    Examples:
      hlo2graph kernels model.hlo
      hlo2graph kernels model.hlo --fuse none
      hlo2graph kernels model.hlo --ptx --arch sm_80
      hlo2graph kernels model.hlo --cubin -o model.cubin
    """
    from hlo2graph.backends.cuda.compiler import check_arch
    from hlo2graph.inspect.kernel_text import kernels_cubin, kernels_ptx, kernels_text

    if ptx and cubin:
        raise click.UsageError("give one of --ptx and --cubin")
    if arch is not None and not (ptx or cubin):
        raise click.UsageError("--arch is for --ptx or --cubin; CUDA C++ is for any GPU")
    if cubin and output is None and sys.stdout.isatty():
        raise click.UsageError("--cubin is no text; give --output FILE")
    whole = read_file(file)
    parts = [only(whole, "--cubin is for")] if cubin else modules_in(whole)
    with progress("planning"):
        plans = [plan_of(p, **_with_target(p, planning)) for p in parts]
    if arch is not None:
        check_arch(arch)
    arch = arch or "sm_90"
    if cubin:
        data = kernels_cubin(plans[0], arch)
        if output is None or output == "-":
            sys.stdout.buffer.write(data)
        else:
            write_whole(output, data)
        return
    texts = (kernels_ptx(p, arch) if ptx else kernels_text(p) for p in plans)
    emit(joined(texts), output)


def _with_target(part: Input, planning: PlanOptions) -> PlanOptions:
    return planning if is_planned(part) else {"target": "sm_90", **planning}
