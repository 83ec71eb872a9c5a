"""The whole way, one line a stage: text in; a Plan, or something to call, out.

After each stage an observer may see `(name, text)`; `--dump` and the golden tests are observers,
so tests see what users see. Nothing is turned into text unless somebody looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias, Unpack, cast

from hlo2graph.backends.cuda.choices import Choices, CudaOptions, GraphOptions
from hlo2graph.backends.cuda.support import input_first
from hlo2graph.backends.host import HostExecutable
from hlo2graph.collector import paused
from hlo2graph.errors import BackendError, InputError
from hlo2graph.frontend.parse import parse as parse_text
from hlo2graph.frontend.thunks import is_thunk_sequence, parse_plan
from hlo2graph.frontend.verify import verify as verify_module
from hlo2graph.frontend.verify import verify_calls
from hlo2graph.hlo import Module
from hlo2graph.hlo.printer import format_module
from hlo2graph.ops.own_dot import gains_nothing, runs_as_own_kernel
from hlo2graph.options import (
    BACKENDS,
    TARGETS,
    Observer,
    Options,
    PlanOptions,
    both_names,
    check_choice,
    check_keywords,
)
from hlo2graph.passes.alone import ALONE
from hlo2graph.passes.call_asyncs import call_asyncs
from hlo2graph.passes.fusion.fuse import fuse, fusion_decisions
from hlo2graph.passes.fusion.unfuse import unfuse
from hlo2graph.passes.fusion.why import Decisions, Why, launches_of
from hlo2graph.passes.order import PASSES, Pass
from hlo2graph.passes.skip_roundings import skip_roundings
from hlo2graph.program.bind import make_plan
from hlo2graph.program.buffers import BufferAssignment, assign_buffers
from hlo2graph.program.buffers.sweep import sweep_buffers
from hlo2graph.program.copies import place_copies
from hlo2graph.program.device_figures import figures_for
from hlo2graph.program.drop_dead import drop_dead
from hlo2graph.program.lower import lower
from hlo2graph.program.plan import Plan
from hlo2graph.program.read_first import read_first
from hlo2graph.program.text.buffers import format_buffers
from hlo2graph.program.text.plan import format_plan
from hlo2graph.program.text.program import format_program
from hlo2graph.program.thunks import Program
from hlo2graph.program.use_libraries import use_libraries

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.executable import CudaExecutable

_COMPILED = re.compile(r"[^\n]+\.h2g")  # the path of one
Stage: TypeAlias = Module | Program | BufferAssignment | Plan


class CompileOptions(PlanOptions, GraphOptions, total=False):
    """PlanOptions and GraphOptions."""


COMPILE_KEYWORDS = frozenset(
    {"backend", "elided", "filename", "observe"}
    | PlanOptions.__annotations__.keys()
    | CudaOptions.__annotations__.keys()
)


def parse(text: str, filename: str = "<string>", verify: bool = True) -> Module:
    """Return the HLO module that `text` holds.

    Raises HloError, with the place in the text, where it is no HLO, or (with `verify`) no legal
    HLO; also for StableHLO and for several modules in one text.
    """
    _check_type(text, str)
    module = parse_text(text, filename)
    return verify_module(module) if verify else module


def plan(
    program: Module | Plan | str,
    *,
    filename: str = "<string>",
    observe: Observer | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Return thunks, slices and edges for an HLO module, given as such or as text.

    observe: called with the name and text of each stage.
    options: the commands' planning flags: target, fuse, schedule, memory_budget and
        max_buffer_reuse; see PlanOptions.
    Thunk-sequence text, and a Plan, are planned already; no planning option applies to them.
    Raises HloError.
    """
    check_keywords("hlo2graph.plan", options, {"filename", "observe", *PlanOptions.__annotations__})
    _check_type(program, Module, Plan, str)
    if isinstance(program, Plan) or (isinstance(program, str) and is_thunk_sequence(program)):
        return _planned_before(program, filename, observe, options)
    chosen = _resolved(options)
    see = _seen_by(observe)
    with paused():
        return _planned(program, filename, chosen, see)


def _planned(
    program: Module | str, filename: str, chosen: Options, see: Callable[[str, Stage], None]
) -> Plan:
    """Take a program through all stages."""
    lowered = _lowered(program, filename, chosen, see)
    buffers = assign_buffers(
        lowered,
        memory_budget=chosen.budget,
        max_buffer_reuse=chosen.max_buffer_reuse,
        schedule=chosen.schedule,
    )
    see("buffers", buffers)
    made = make_plan(
        lowered, buffers, target=chosen.machine, fuse=chosen.fusion, schedule=chosen.schedule
    )
    see("plan", made)
    return made


def sweep(
    program: Module | str,
    *,
    filename: str = "<string>",
    **options: Unpack[PlanOptions],
) -> Iterator[tuple[str, Plan]]:
    """Yield plans of one program from the least memory to the most concurrency, with their names.

    options: target and fuse, as for `plan`. program.buffers.sweep says which plans they are.
    Raises HloError.
    """
    if _is_planned(program):
        raise InputError("a thunk sequence is planned already; plan its HLO instead")
    chosen = _resolved(options)
    lowered = _lowered(program, filename, chosen, _seen_by(None))
    for point in sweep_buffers(lowered):
        yield (
            point.name,
            make_plan(
                lowered,
                point.buffers,
                target=chosen.machine,
                fuse=chosen.fusion,
                schedule=point.schedule,
            ),
        )


def _lowered(
    program: Module | str, filename: str, chosen: Options, see: Callable[[str, Stage], None]
) -> Program:
    """Take a program through all stages before its values get their bytes."""
    module = parse_text(program, filename) if isinstance(program, str) else program
    see("parse", module)
    module = verify_module(module)
    verify_calls(module.computations)
    see("verify", module)
    for rewrite in _rewrites(module, chosen):
        written, module = module, rewrite(module)
        if module is not written:
            see(rewrite.__name__, module)
    lowered = lower(module)
    see("lower", lowered)
    if chosen.fusion == "default":
        lowered = drop_dead(lowered)
        see("drop_dead", lowered)
    if chosen.machine != "host":
        is_own = runs_as_own_kernel if chosen.fusion == "default" else gains_nothing
        lowered = use_libraries(lowered, is_own)
        see("use_libraries", lowered)
    ordered = read_first(lowered)
    if ordered is not lowered:
        see("read_first", ordered)
    lowered = ordered
    lowered = place_copies(lowered)
    see("place_copies", lowered)
    return lowered


def why(
    program: Module | str, *, filename: str = "<string>", **options: Unpack[PlanOptions]
) -> Why:
    """Return why fusion made of a module's instructions the kernels that it made.

    options: as for `plan`. Raises HloError.
    """
    if isinstance(program, str) and is_thunk_sequence(program):
        raise InputError("--why: a thunk sequence is planned already; plan its HLO instead")
    chosen = _resolved(options)
    module = parse_text(program, filename) if isinstance(program, str) else program
    module = verify_module(module)
    verify_calls(module.computations)
    decisions: tuple[Decisions, ...] = ()
    for rewrite in _rewrites(module, chosen):
        if rewrite is fuse:
            decisions = fusion_decisions(module)
        module = rewrite(module)
    return Why(decisions, launches_of(module), _why_kept(module, chosen))


def _why_kept(module: Module, chosen: Options) -> str:
    """Return the reason for which nothing is fused, '' where it is."""
    if chosen.fuse == "none":
        return "fuse=none plans what is written; --fuse default fuses"
    if chosen.fusion == "none":
        return "the host runs what is written unless --fuse default asks for more"
    if module.is_scheduled and chosen.fuse is None:
        return "XLA has scheduled the module, so its fusions are kept; --fuse default fuses anew"
    return ""


def compile(
    program: Module | Plan | str,
    backend: str = "auto",
    matmul_precision: str = "default",
    *,
    elided: str | None = None,
    filename: str = "<string>",
    observe: Observer | None = None,
    **options: Unpack[CompileOptions],
) -> HostExecutable | CudaExecutable:
    """Return a callable that runs the program: leaves of the parameters in, result leaves out.

    backend: host, cuda, or auto, the best there is here.
    matmul_precision: what dots may round to on cuda; the host always computes in full.
    elided: stand-ins for constants that the text left out, zeros or random:SEED; None refuses
        such a program.
    observe: as for `plan`.
    options: those of `plan`, and for cuda unroll_loops, pointers, capture and temporaries; see
        GraphOptions.
    Raises HloError, or BackendError where the backend is not there.
    """
    check_keywords("hlo2graph.compile", options, COMPILE_KEYWORDS)
    check_choice("backend", backend, BACKENDS)
    planning, running = _parted(options)
    choices = Choices(matmul_precision, **running)
    make_anywhere = partial(plan, program, filename=filename, **_for_a_gpu(program, planning))
    with input_first(make_anywhere, elided):
        machine = machine_for(backend)
    if not _is_planned(program):
        planning.setdefault("target", machine)
    make = partial(plan, program, filename=filename, observe=observe, **planning)
    if machine == "host":
        return HostExecutable(make(), elided=elided)
    with paused():
        from hlo2graph.backends.cuda.driver import open_device
        from hlo2graph.backends.cuda.functions import begin_own

        begin_own(open_device().arch)  # beside all that is loaded below, and planned
        from hlo2graph.backends.cuda.executable import CudaExecutable
        from hlo2graph.saved.kept import place_of, planned_once

        place = None
        if isinstance(program, str) and not _is_planned(program) and observe is None:
            chosen = str(_resolved(planning)), matmul_precision, str(elided)
            place = place_of(program, filename, *chosen)
        made, texts = planned_once(place, make)
        given = cast(CudaOptions, asdict(choices))
        return CudaExecutable(made, elided=elided, texts=texts, **given)


def _for_a_gpu(program: Module | Plan | str, planning: PlanOptions) -> PlanOptions:
    """Return the options to plan with where no GPU says which it is; a plan has its own."""
    return planning if _is_planned(program) else {"target": "sm_90", **planning}


def _parted(options: CompileOptions) -> tuple[PlanOptions, GraphOptions]:
    """Return what is for the plan, and all else."""
    planning = {k: v for k, v in options.items() if k in PlanOptions.__annotations__}
    running = {k: v for k, v in options.items() if k not in planning}
    return cast(PlanOptions, planning), cast(GraphOptions, running)


def machine_for(backend: str) -> str:
    """Return the target to plan for: host, or the GPU's where `backend` is cuda, or auto finds one.

    Raises:
        BackendError: cuda was asked for, and something that it takes is missing.
    """
    if backend == "host":
        return "host"
    try:
        return cuda_target()
    except BackendError:
        if backend == "cuda":
            raise
        return "host"


def cuda_target() -> str:
    """Return the target to plan for on the GPU that is here.

    Raises:
        BackendError: there is no GPU, or something that it takes to use it is missing.
    """
    from hlo2graph.backends.cuda.driver import open_device

    arch = open_device().arch
    fitting = [t for t in TARGETS if t.startswith("sm_") and _number(t) <= _number(arch)]
    if not fitting:
        raise BackendError(f"this GPU is {arch}; kernels are for sm_80 and newer")
    return max(fitting, key=_number)


def _check_type(given: object, *wanted: type) -> None:
    """Raise InputError unless `given` is of a type that a program can have."""
    if isinstance(given, str | PathLike) and _COMPILED.fullmatch(str(given)):
        raise InputError(f"{given} names a compiled file: hlo2graph.load runs it")
    if not isinstance(given, wanted):
        names = " or a ".join(["HLO text", *(t.__name__ for t in wanted if t is not str)])
        raise InputError(
            f"a program is {names}, not {type(given).__name__}; in JAX, "
            "lowered.as_text('hlo') and compiled.as_text() give HLO text"
        )


def _number(target: str) -> int:
    return int(target.removeprefix("sm_"))


def _resolved(options: PlanOptions) -> Options:
    """Return the options, `auto` resolved to what is here."""
    chosen = Options(**options)
    return replace(chosen, target=machine_for("auto")) if chosen.target == "auto" else chosen


def _rewrites(module: Module, chosen: Options) -> tuple[Pass, ...]:
    """Return the passes; what XLA has scheduled keeps its fusions unless fusion is asked for."""
    passes = PASSES[chosen.fusion]
    if module.is_scheduled and chosen.fusion != "none":
        asked = (call_asyncs, unfuse, *PASSES["default"])
        passes = PASSES["none"] if chosen.fuse is None else asked
    if figures_for(chosen.machine).cluster == 1:
        passes = tuple(ALONE.get(rewrite, rewrite) for rewrite in passes)
    return (*passes, skip_roundings) if chosen.machine == "host" else passes


def _is_planned(program: Module | Plan | str) -> bool:
    return isinstance(program, Plan) or (isinstance(program, str) and is_thunk_sequence(program))


def _planned_before(
    program: Plan | str, filename: str, observe: Observer | None, options: PlanOptions
) -> Plan:
    if options:
        given = both_names(options)
        raise InputError(f"{given}: a thunk sequence is planned already; plan its HLO instead")
    made = program if isinstance(program, Plan) else parse_plan(program, filename)
    _seen_by(observe)("plan", made)
    return made


def _seen_by(observe: Observer | None) -> Callable[[str, Stage], None]:
    """Return what shows a stage's result to the observer, as text."""
    if observe is None:
        return lambda _name, _stage: None

    def see(name: str, stage: Stage) -> None:
        observe(name, _text(stage))

    return see


def _text(stage: Stage) -> str:
    match stage:
        case Module():
            return format_module(stage)
        case Program():
            return format_program(stage)
        case BufferAssignment():
            return format_buffers(stage)
        case Plan():
            return format_plan(stage)
