"""`hlo2graph dot`: the graph as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo2graph.cli.dot_options import DotOptions, dot_options
from hlo2graph.cli.files import (
    Input,
    dump_to,
    emit,
    modules_in,
    only,
    read_bytes,
    read_file,
    write_whole,
)
from hlo2graph.cli.options import (
    dump_option,
    file_argument,
    given_of,
    output_option,
    planning_options,
)
from hlo2graph.cli.programs import input_first, module_of, plan_of
from hlo2graph.cli.progress import progress
from hlo2graph.cli.voice import voice
from hlo2graph.options import Observer, PlanOptions, flags_of

if TYPE_CHECKING:
    from hlo2graph.hlo import Module
    from hlo2graph.inspect.durations import Durations
    from hlo2graph.inspect.page import Choice
    from hlo2graph.inspect.picture import Picture
    from hlo2graph.program.plan import Plan

MOST_PLANNED = 3000  # thunks, for which seven plans more take seconds
MOST_LOWERED = 15_000  # instructions, which fusion takes seconds to make fewer thunks of
DOT = ("", ".dot", ".gv")


@click.command("dot", short_help="Draw the graph of FILE, each edge with its hazard and bytes.")
@file_argument
@output_option
@dot_options
@planning_options
@dump_option
def command(
    file: str,
    output: str | None,
    planning: PlanOptions,
    dump: str | None,
    options: DotOptions,
) -> None:
    """Draw the graph of FILE, each edge with its hazard and bytes; DOT on stdout.

    With -o, the file's suffix says what is written: .dot; .svg, .png or .pdf,
    which Graphviz draws; .html, a page to look around in, which needs nothing
    but a browser; .json or .mmd (Mermaid). No GPU is needed, whatever the
    target. Several modules give as many graphs.

    \b
    Examples:
      hlo2graph dot model.hlo -o model.html
      hlo2graph dot model.hlo --target sm_90 --fold -o model.svg
      hlo2graph dot model.hlo --around dot.7 --hops 3
      hlo2graph dot model.hlo --computation while.3/body
      hlo2graph dot model.hlo --stage graph --target sm_90 -o graph.svg
    """
    from hlo2graph.inspect.render import check_format

    _say_what_is_idle(options, [*planning, *(["dump"] if dump else [])])
    suffix = Path(output).suffix.lower() if output and output != "-" else ""
    if suffix not in (*DOT, ".html"):
        check_format(suffix.removeprefix("."))
    whole = read_file(file)
    parts = modules_in(whole) if suffix in DOT else [only(whole, f"a {suffix} file draws")]
    drawn: list[str | bytes] = []
    for number, part in enumerate(parts):
        observe = dump_to(dump, str(number) if len(parts) > 1 else "")
        drawn.append(_drawn(part, suffix, planning, observe, options))
    first = drawn[0]
    if isinstance(first, bytes):
        assert output is not None
        write_whole(output, first)
    else:
        emit("\n".join(text for text in drawn if isinstance(text, str)), output)


def _say_what_is_idle(options: DotOptions, others: list[str]) -> None:
    """Name the flags that were given and change nothing; `others` are those of a plan."""
    given = given_of(options)
    if options["driver"]:
        drawn = "the driver's own drawing"
        idle = [name for name in given if name not in ("driver", "unroll_loops")]
        idle += [name for name in others if name == "dump"]
    elif options["stage"] == "hlo":
        drawn = "--stage hlo, the module as written"
        idle = [*others, *(name for name in given if name == "unroll_loops")]
    else:
        drawn = "--stage thunks, loops as they are"
        idle = [n for n in given if n == "unroll_loops" and options["stage"] != "graph"]
    if idle:
        flags = flags_of(idle)
        voice().note(f"note: this draws {drawn}, to which {flags} means nothing")


def _drawn(
    part: Input,
    suffix: str,
    planning: PlanOptions,
    observe: Observer | None,
    options: DotOptions,
) -> str | bytes:
    """Return one module's file."""
    from hlo2graph.inspect.render import render, written

    if options["driver"]:
        text = _by_driver(part, planning, options)
        return text if suffix in DOT else render(text, suffix.removeprefix("."))
    module, plan = _planned(part, planning, observe, options)
    times = _times(plan, options)
    colour = options["color"] or ("time" if options["times"] else "kind")
    with progress("drawing"):
        picture = _picture(module, plan, times, options)
        if suffix == ".html":
            from hlo2graph.inspect.page import page

            others = () if part.saved else _choices(module, plan, planning)
            return page(
                picture, plan=plan, module=module, durations=times, choices=others, colour=colour
            )
        if times is not None and (colour == "time" or suffix == ".json"):
            picture = replace(picture, caption=(*picture.caption, f"times {times.how}"))
        return written(picture, "dot" if suffix in DOT else suffix.removeprefix("."), colour)


def _planned(
    part: Input, planning: PlanOptions, observe: Observer | None, options: DotOptions
) -> tuple[Module | None, Plan | None]:
    """Return the module, which a thunk sequence has none of, and the plan, if it is drawn."""
    module = module_of(part, verify=options["stage"] == "hlo")
    if options["stage"] == "hlo":
        if module is None:
            kind = "a plan without its module" if part.saved else "a thunk sequence"
            raise click.UsageError(f"--stage hlo draws HLO; FILE is {kind}")
        return module, None
    with progress("planning"):
        return module, plan_of(part, module, observe, **planning)


def _picture(
    module: Module | None, plan: Plan | None, times: Durations | None, options: DotOptions
) -> Picture:
    from hlo2graph.inspect import picture as pictures

    depth, computation = options["depth"], options["computation"]
    tables = module.tables if module else ""
    if plan is None:
        assert module is not None
        whole = pictures.picture_of_module(module, depth=depth, computation=computation)
    elif options["stage"] == "graph":
        if depth is not None or computation is not None:
            raise click.UsageError("--depth and --computation are for --stage thunks and hlo")
        from hlo2graph.inspect.picture.of_graph import picture_of_graph

        whole = picture_of_graph(
            plan,
            unroll_loops=options["unroll_loops"],
            tables=tables,
            seconds=times.each if times else lambda _: None,
        )
    else:
        seconds = times.total if times else lambda _: None
        whole = pictures.picture_of_plan(
            plan, depth=depth, computation=computation, tables=tables, seconds=seconds
        )
    return pictures.selected(
        whole,
        edges=options["edges"],
        around=options["around"],
        hops=options["hops"],
        fold=options["fold"],
        limit=options["limit"],
    )


def _times(plan: Plan | None, options: DotOptions) -> Durations | None:
    """Return how long thunks take: as measured, or, where there is a plan, an estimate."""
    from hlo2graph.inspect.durations import estimated, measured

    if plan is None:
        if options["times"] or options["color"] == "time":
            raise click.UsageError("--times and --color time are for thunks; --stage hlo has none")
        return None
    if options["times"]:
        return measured(read_bytes(options["times"])[0], options["times"], plan)
    return estimated(plan)


def _choices(module: Module | None, plan: Plan | None, planning: PlanOptions) -> tuple[Choice, ...]:
    """Return plans from the least memory to the most concurrency, the one drawn among them.

    There are none of a thunk sequence, and none of a module that takes long to plan.
    """
    from hlo2graph.inspect.page import Choice
    from hlo2graph.pipeline import sweep

    if module is None or plan is None or len(plan.body.thunks) > MOST_PLANNED:
        return ()
    if sum(len(c.instructions) for c in module.computations.values()) > MOST_LOWERED:
        return ()
    plain = planning.copy()
    plain.pop("memory_budget", None)
    plain.pop("max_buffer_reuse", None)
    plain.pop("schedule", None)
    found = [Choice(name, made, made.body == plan.body) for name, made in sweep(module, **plain)]
    if not any(choice.is_shown for choice in found):
        found.append(Choice("as asked for", plan, is_shown=True))
    return tuple(sorted(found, key=lambda choice: choice.plan.arena.size))


def _by_driver(part: Input, planning: PlanOptions, options: DotOptions) -> str:
    """Return the driver's own drawing of the graph."""
    from hlo2graph.pipeline import compile, cuda_target

    with input_first(part, planning, elided="zeros"):
        cuda_target()
    with progress("compiling"):
        executable = compile(
            part.saved.plan if part.saved else part.text,
            "cuda",
            unroll_loops=options["unroll_loops"],
            elided="zeros",
            filename=part.filename,
            **planning,
        )
    from hlo2graph.backends.cuda.driver_dot import driver_dot
    from hlo2graph.backends.cuda.executable import CudaExecutable

    assert isinstance(executable, CudaExecutable)
    return driver_dot(executable)
