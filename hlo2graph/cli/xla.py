"""`hlo2graph xla`: the graphs that XLA made of a module, rebuilt from its dump."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import click

import hlo2graph
from hlo2graph.cli.files import Input, emit_report, read_file
from hlo2graph.cli.options import F, json_option, output_option
from hlo2graph.cli.paths import Named
from hlo2graph.cli.programs import text_of
from hlo2graph.cli.progress import progress
from hlo2graph.options import TARGETS

if TYPE_CHECKING:
    from hlo2graph.frontend.xla_dump import Dump
    from hlo2graph.inspect.xla_graph.report import XlaReport

KERNELS = "ours, of XLA's kernels"
MODES = ("lhs", "concurrent", "serialize")


class _Reading(TypedDict):
    """How a dump is read."""

    mode: str | None
    before: str | None
    target: str | None
    against: str | None


_READING = (
    click.option(
        "--mode",
        type=click.Choice(MODES),
        help="How XLA ordered its graphs.  [default: what its dumped options say, or else lhs; "
        "concurrent for XLA:CPU]",
    ),
    click.option(
        "--before",
        metavar="FILE",
        type=Named(),
        help="The module before XLA's passes, where the dump lacks it: to set our kernels beside.",
    ),
    click.option(
        "--target",
        type=click.Choice(TARGETS[1:]),
        help="What our plans are for.  [default: what the files' names say, or sm_90]",
    ),
    click.option(
        "--against",
        metavar="LOG",
        type=Named(),
        help="XLA's own print of its graphs: say how it differs, exit code 1 where it does.",
    ),
)


def _reading_options(function: F) -> F:
    """Add the options of `_Reading`, which come as one argument, `reading`."""

    @wraps(function)
    def bundled(**options: object) -> object:
        taken = {name: options.pop(name) for name in _Reading.__annotations__}
        return function(reading=taken, **options)

    for option in reversed(_READING):
        bundled = option(bundled)
    return cast(F, bundled)


@click.command("xla", short_help="Show the graphs that XLA made, from its dump, beside ours.")
@click.argument("paths", metavar="DIR|FILE...", nargs=-1, required=True, type=Named())
@output_option
@_reading_options
@click.option(
    "--module",
    metavar="NAME",
    help="Of several modules the one of this name, number or folder: jit_step, module_0042.",
)
@click.option("--summary", is_flag=True, help="Leave out the nodes and edges of XLA's graphs.")
@json_option
def command(
    paths: tuple[str, ...],
    output: str | None,
    reading: _Reading,
    module: str | None,
    summary: bool,
    json_file: str | None,
) -> None:
    """Show the graphs that XLA made, from a dump of its, beside ours.

    DIR is what XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text" writes; of
    each module the files *after_optimizations.txt and *buffer-assignment.txt are
    needed, *thunk_sequence*.txt says how XLA cut it into graphs. Every edge gets
    the reason that the program has for it, or is false: inplace and reuse are
    there because buffers share bytes, order because of the mode. What the
    program orders and XLA does not is listed as unordered. Beside stand our
    plans: of XLA's kernels, and of the module before XLA's passes. `width` is the
    most thunks at one depth, `path` the thunks on the longest path, `temp` what
    temporaries take.

    XLA prints its graphs itself with TF_CPP_MIN_LOG_LEVEL=0 and
    TF_CPP_VMODULE=command_executor=3, which --against reads.

    \b
    Examples:
      hlo2graph xla dump/
      hlo2graph xla dump/ --module jit_train_step --summary
      hlo2graph xla dump/ --mode concurrent --against xla.log
      hlo2graph xla dump/ --json - | jq .sides
    """
    from hlo2graph.frontend.xla_dump import dumps_called, find_dumps
    from hlo2graph.inspect.xla_graph.report import xla_json, xla_text

    if "-" in paths:
        raise click.UsageError("a dump is several files, and stdin is none of them; name them")
    for path in paths:
        Path(path).stat()  # raises where nothing is there
    dumps = find_dumps(map(Path, paths))
    dumps = dumps if module is None else dumps_called(dumps, module)
    if len(dumps) > 1 and (reading["before"] or reading["against"]):
        raise click.UsageError(f"{len(dumps)} modules here; say which with --module")
    reports = [_report(dump, reading) for dump in dumps]
    short = summary or len(reports) > 1
    emit_report(
        lambda: [xla_json(report) for report in reports],
        lambda: "\n".join(xla_text(r, summary=short, is_named=len(reports) > 1) for r in reports),
        json_file,
        output,
    )
    if any(report.differences for report in reports):
        click.get_current_context().exit(1)


def _report(dump: Dump, reading: _Reading) -> XlaReport:
    from hlo2graph.frontend.xla_dump import build_thunks, parse_assignment, parse_sequence
    from hlo2graph.inspect.xla_graph.graph import Mode
    from hlo2graph.inspect.xla_graph.report import report_on

    machine = reading["target"] or dump.target or "sm_90"
    optimized, assignment = _read(dump.optimized), _read(dump.assignment)
    with progress("reading"):
        module = hlo2graph.parse(optimized.text, optimized.filename)
        buffers = parse_assignment(assignment.text, assignment.filename)
        thunks = build_thunks(module, buffers)
        sequence = _read(dump.sequence) if dump.sequence else None
        printed = parse_sequence(sequence.text, sequence.filename) if sequence else None
    known = reading["mode"] or dump.mode or ("concurrent" if machine == "host" else None)
    ordered = known or "lhs"
    report = report_on(module.name, thunks, printed, buffers, Mode(ordered))
    unsaid = f"the dump does not say XLA's mode: taken for {ordered}; --mode names another"
    notes = (*report.notes, *[unsaid] * (known is None))
    report = replace(report, file=optimized.filename, notes=notes)
    before = _read(dump.before) if dump.before else None
    if reading["before"]:
        before = _read(Path(reading["before"]))
        report = _with_given(report, before)
    report = _with_ours(report, optimized, before, machine)
    return _against(report, reading["against"])


def _with_given(report: XlaReport, before: Input) -> XlaReport:
    """Say where a module that was given has another name. Raises HloError where it is none."""
    name = hlo2graph.parse(text_of(before), before.filename).name
    if name == report.module:
        return report
    note = f"{before.filename} is {name}, not {report.module}: perhaps another program"
    return replace(report, notes=(*report.notes, note))


def _with_ours(report: XlaReport, optimized: Input, before: Input | None, target: str) -> XlaReport:
    """Add our plans' figures, or why there is none; that of XLA's kernels goes beside its edges."""
    from hlo2graph.inspect.xla_graph.beside import Beside
    from hlo2graph.inspect.xla_graph.summary import plan_side

    sides, notes, beside = list(report.sides), list(report.notes), None
    for label, text in ((KERNELS, optimized), ("ours", before)):
        if text is None:
            continue
        try:
            with progress("planning"):
                plan = hlo2graph.plan(text_of(text), filename=text.filename, target=target)
        except hlo2graph.HloError as error:
            notes.append(f"{label}: not planned: {error.message}")
        else:
            sides.append(plan_side(label, plan))
            beside = Beside(plan) if label == KERNELS else beside
    return replace(report, sides=tuple(sides), notes=tuple(notes), beside=beside)


def _against(report: XlaReport, log: str | None) -> XlaReport:
    from hlo2graph.frontend.xla_dump import parse_printed
    from hlo2graph.inspect.xla_graph.report import compare_printed

    if log is None:
        return report
    printed = parse_printed(_read(Path(log)).text, log)
    return replace(report, differences=compare_printed(report.graphs, printed))


def _read(path: Path) -> Input:
    return read_file(str(path))
