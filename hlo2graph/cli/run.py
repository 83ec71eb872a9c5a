"""`hlo2graph run`: compile, run, check, time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from hlo2graph.cli.files import Input, dump_to, emit, modules_in, only, read_file
from hlo2graph.cli.options import dump_option, file_argument, json_option, planning_options
from hlo2graph.cli.programs import input_first, is_planned, module_of, plan_of
from hlo2graph.cli.progress import Progress, progress
from hlo2graph.cli.run_options import RunOptions, given_choices, run_options
from hlo2graph.cli.voice import voice
from hlo2graph.errors import BackendError
from hlo2graph.options import flags_of

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.executable import CudaExecutable
    from hlo2graph.backends.host import HostExecutable
    from hlo2graph.hlo import Module
    from hlo2graph.inspect.report import RunReport, Stage
    from hlo2graph.inspect.session import Wishes
    from hlo2graph.ops.spec import Array
    from hlo2graph.options import Observer
    from hlo2graph.program.plan import Plan
    from hlo2graph.saved.reading import Saved


class _Session(TypedDict):
    """What a session is told beside what to run."""

    module: Module | None
    stages: tuple[Stage, ...]
    settings: tuple[str, ...]
    inputs_given: bool


@click.command("run")
@file_argument
@run_options
@planning_options
@json_option
@dump_option
def command(
    file: str,
    json_file: str | None,
    dump: str | None,
    fail_if_slower: float | None,
    **options: Unpack[RunOptions],
) -> None:
    """Compile FILE, run it, check the results and time it.

    Prints the results in brief, how they compare with a reference and with
    other orders that the graph allows, the plan in figures, and a table of
    times on the same buffers: on the host, one thread in program order and a
    pool of threads along the graph; on cuda, the serial stream, a graph of the
    same nodes in program order, and the graph. Inputs are random unless given.

    Of each mode the table has latency, from the call until the results are
    there, and on cuda `enqueue`, until the host has handed everything over, and
    `device`, from the first node to the last. The last column is how many times
    as fast as the first mode it is, with a 95 % interval. `width` is the most
    thunks at one depth, `critical path` the thunks on the longest path.

    \b
    Examples:
      hlo2graph run model.hlo
      hlo2graph run model.hlo --inputs x.npz --save-outputs y.npz
      hlo2graph run model.hlo --input x.1=@x.npy --reference xla
      hlo2graph run model.hlo --duration 5s --json report.json
      hlo2graph plan model.hlo | hlo2graph run -
    """
    from hlo2graph.inspect.report import report_text
    from hlo2graph.inspect.report_json import report_json

    if fail_if_slower is not None and not options["duration"]:
        raise click.UsageError("--fail-if-slower needs times, and --duration 0 measures none")
    tolerances = (options["abs_error"], options["rel_error"])
    if options["reference"] == "none" and any(t is not None for t in tolerances):
        voice().note(
            "note: with --reference none nothing is compared within --abs-error, --rel-error"
        )
    whole = read_file(file)
    for flag in ("save_outputs", "trace"):
        if options[flag]:
            only(whole, f"{flags_of([flag])} is for")
    parts = modules_in(whole)
    reports = []
    for number, part in enumerate(parts):
        folder = dump_to(dump, str(number) if len(parts) > 1 else "")
        with progress(part.filename, silent=json_file == "-") as shown:
            report = _run(part, folder, options, shown)
        reports.append(report)
        if json_file != "-":
            click.echo(("\n" if number else "") + report_text(report))
    if json_file is not None:
        documents = [report_json(report) for report in reports]
        emit(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2), json_file)
    slow = [r for r in reports if fail_if_slower is not None and _slower(r, fail_if_slower)]
    for report in slow:
        assert report.timings is not None
        took = 1 / report.timings.ratios[-1].value
        text = (
            f"{report.plan.name}: the graph takes {took:.2f} times as long as "
            f"{report.timings.modes[0].mode.name}, --fail-if-slower allows {fail_if_slower:g}"
        )
        voice().fault(text, file=file)
    if slow or not all(report.ok for report in reports):
        _annotate(reports, file)
        click.get_current_context().exit(1)


def _annotate(reports: Sequence[RunReport], file: str) -> None:
    """Mark the file for each check that failed; the report has said it already."""
    from hlo2graph.inspect.report import check_text

    for report in reports:
        for check in report.checks:
            if not check.ok:
                voice().annotate(f"{report.plan.name}: {check_text(check)}", file=file)


def _run(part: Input, observe: Observer | None, options: RunOptions, shown: Progress) -> RunReport:
    """Compile, run, check and measure one module."""
    from hlo2graph.backends.elided import fill_module
    from hlo2graph.backends.host import HostExecutable
    from hlo2graph.inspect.arrays import save_outputs

    stages: list[Stage] = []
    elided = options["elided"]
    module, executable = _compiled(part, observe, options, stages, shown)
    for caveat in executable.caveats:
        voice().note(f"note: {caveat}")
    args, all_given = _arguments(executable.plan, options, part)
    session: _Session = {
        "module": fill_module(module, elided) if module and elided else module,
        "stages": tuple(stages),
        "settings": (f"elided {elided}",) if elided else (),
        "inputs_given": all_given,
    }
    wishes = _wishes(options, shown)
    if isinstance(executable, HostExecutable):
        from hlo2graph.inspect.session import run_session

        _say_what_is_for_cuda(options)
        report, results = run_session(executable, args, wishes, **session)
    else:
        from hlo2graph.inspect.cuda_session import run_cuda_session

        report, results = run_cuda_session(executable, args, wishes, **session)
    if options["trace"] and report.profile is not None:
        from hlo2graph.inspect.trace import trace_json

        tables = module.tables if module else ""
        document = trace_json(report.profile, report.plan, tables)
        emit(json.dumps(document), options["trace"])
    if options["save_outputs"]:
        save_outputs(Path(options["save_outputs"]), results)
    return report


def _say_what_is_for_cuda(options: RunOptions) -> None:
    """Name the flags that were given and mean nothing to the host."""
    names = [*given_choices(options), *(["cold_l2"] if options["cold_l2"] else [])]
    if names:
        are = "are" if len(names) > 1 else "is"
        voice().note(f"note: {flags_of(sorted(names))} {are} for cuda; this runs on the host")


def _compiled(
    part: Input,
    observe: Observer | None,
    options: RunOptions,
    stages: list[Stage],
    shown: Progress,
) -> tuple[Module | None, HostExecutable | CudaExecutable]:
    """Return the module, which a thunk sequence has none of, and what runs it."""
    from hlo2graph.backends.cuda.choices import Choices
    from hlo2graph.saved.choices import checked

    planning, elided = options["planning"], options["elided"]

    def look(plan: Plan) -> None:
        checked(replace(Choices(), **given_choices(options)))
        _arguments(plan, options, part)

    if part.saved is not None:
        with _timed("load", stages, shown), input_first(part, planning, elided, look):
            plan_of(part, observe=observe, **planning)
            return part.saved.module, _loaded(part.saved, options)
    with input_first(part, planning, elided, look):
        machine = _machine(options["backend"])
    from hlo2graph.pipeline import compile

    module = None
    if not is_planned(part):
        with _timed("parse", stages, shown):
            module = module_of(part)
        planning = {"target": machine, **planning}
    with _timed("plan", stages, shown):
        made = plan_of(part, module, observe, **planning)
    with _timed("load", stages, shown):
        executable = compile(
            made,
            "host" if machine == "host" else "cuda",
            options["matmul_precision"],
            elided=elided,
            unroll_loops=options["unroll_loops"],
            pointers=options["pointers"],
            capture=options["capture"],
            temporaries=options["temporaries"],
        )
    return module, executable


def _machine(backend: str) -> str:
    from hlo2graph.pipeline import machine_for

    try:
        return machine_for(backend)
    except BackendError as error:
        raise BackendError(f"{error}; --backend host takes no GPU") from error


def _loaded(saved: Saved, options: RunOptions) -> HostExecutable | CudaExecutable:
    """Return what runs a .h2g file; flags that were given count for more than those it has."""
    return saved.load(options["backend"], elided=options["elided"], **given_choices(options))


def _arguments(plan: Plan, options: RunOptions, part: Input) -> tuple[list[Array], bool]:
    """Return an array per parameter leaf, and whether all were given."""
    from hlo2graph.backends.arguments import check_arguments
    from hlo2graph.inspect.arrays import load_inputs, parse_inputs, random_inputs

    found = dict(enumerate(check_arguments(part.arguments, plan.inputs))) if part.arguments else {}
    if options["inputs"]:
        found |= load_inputs(Path(options["inputs"]), plan.inputs, voice().note)
    found |= parse_inputs(options["given"], plan.inputs)
    drawn = random_inputs(plan.inputs, options["seed"])
    all_given = bool(found) and len(found) == len(drawn)
    return [found.get(at, array) for at, array in enumerate(drawn)], all_given


def _wishes(options: RunOptions, shown: Progress) -> Wishes:
    from hlo2graph.inspect.session import Wishes, default_threads
    from hlo2graph.inspect.timing import Budget

    budget = Budget(
        options["warmup"], options["duration"], options["iterations"], options["percentile"]
    )
    return Wishes(
        reference=options["reference"],
        relative=options["rel_error"],
        absolute=options["abs_error"],
        seed=options["seed"],
        threads=options["threads"] or default_threads(),
        budget=budget if options["duration"] else None,
        cold_l2=options["cold_l2"],
        profile=bool(options["profile"] or options["trace"]),
        waiting=shown,
    )


def _slower(report: RunReport, factor: float) -> bool:
    """The graph took more than `factor` times as long as the serial order."""
    if report.timings is None:
        return False
    return report.timings.ratios[-1].value * factor < 1


@contextmanager
def _timed(stage: str, stages: list[Stage], shown: Progress) -> Iterator[None]:
    from hlo2graph.inspect.report import Stage

    shown.say(stage)
    start = perf_counter()
    yield
    stages.append(Stage(stage, perf_counter() - start))
