"""What FILE is as a plan, a module or text; of a .h2g file without parsing or planning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Unpack

import hlo2graph
from hlo2graph.cli.files import Input, joined, modules_in
from hlo2graph.errors import HloError, InputError
from hlo2graph.options import Observer, PlanOptions, flags_of

if TYPE_CHECKING:
    from hlo2graph.hlo import Module
    from hlo2graph.program.plan import Plan


def is_planned(part: Input) -> bool:
    """Tell whether it is a plan already: a thunk sequence or a .h2g file."""
    if part.saved is not None:
        return True
    from hlo2graph.frontend.thunks import is_thunk_sequence

    return is_thunk_sequence(part.text)


def module_of(part: Input, *, verify: bool = False) -> Module | None:
    """Return the module; a thunk sequence has none, nor has a .h2g file of one."""
    if part.saved is not None:
        return part.saved.module
    return None if is_planned(part) else hlo2graph.parse(part.text, part.filename, verify=verify)


def plan_of(
    part: Input,
    module: Module | None = None,
    observe: Observer | None = None,
    **planning: Unpack[PlanOptions],
) -> Plan:
    """Return the plan; `module` is the part's, where it was asked for before.

    Raises HloError, also for planning options where there is nothing to plan.
    """
    if part.saved is None:
        program = module or part.text
        return hlo2graph.plan(program, filename=part.filename, observe=observe, **planning)
    _refuse(part, planning)
    if observe is not None:
        observe("plan", str(part.saved.plan))
    return part.saved.plan


def why_options(part: Input, planning: PlanOptions) -> PlanOptions:
    """Return how the plan was, or is to be, made: what explains it."""
    if part.saved is None:
        return planning
    _refuse(part, planning)
    plan = part.saved.plan
    made: PlanOptions = {"target": plan.target}
    return made if plan.fuse == "default" else {**made, "fuse": plan.fuse}


def _refuse(part: Input, planning: PlanOptions) -> None:
    if planning:
        flags = flags_of(planning)
        raise InputError(f"{flags}: {part.filename} is planned already; compile its HLO anew")


@contextmanager
def input_first(
    part: Input,
    planning: PlanOptions,
    elided: str | None = None,
    look: Callable[[Plan], object] = lambda _: None,
) -> Iterator[None]:
    """Where the body finds that a GPU is missing, say before that what is wrong with the input.

    `look` raises for what else is wrong.
    """
    from hlo2graph.backends.cuda import support

    options: PlanOptions = planning if is_planned(part) else {"target": "sm_90", **planning}
    with support.input_first(partial(plan_of, part, **options), elided, look):
        yield


def canonical(whole: Input) -> str:
    """Return canonical HLO text, of several modules too.

    Raises HloError for what is no HLO; text that was made of something else stays as it is, where
    we cannot read it.
    """
    from hlo2graph.hlo.printer import format_module

    texts = []
    for part in modules_in(whole):
        try:
            module = hlo2graph.parse(text_of(part), part.filename, verify=False)
        except HloError:
            if not whole.is_imported:
                raise
            texts.append(part.text.lstrip("\n"))
        else:
            texts.append(format_module(module))
    return joined(texts)


def text_of(part: Input) -> str:
    """Return the text of the module or plan; of a .h2g file as it would be printed."""
    if part.saved is None:
        return part.text
    return str(part.saved.module or part.saved.plan)
