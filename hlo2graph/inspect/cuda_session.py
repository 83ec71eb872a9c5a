"""One run of a program on CUDA: results, checks on the device and against a reference; timings."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.backends.cuda.choices import Choices
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.hlo import Module
from hlo2graph.inspect.arrays import random_inputs
from hlo2graph.inspect.captured import Captured
from hlo2graph.inspect.cuda_runner import CudaRunner
from hlo2graph.inspect.device_check import check_device, poisoned_run
from hlo2graph.inspect.figures import plural
from hlo2graph.inspect.profile import profile
from hlo2graph.inspect.report import RunReport, Stage
from hlo2graph.inspect.self_check import Check
from hlo2graph.inspect.session import Wishes, check_reference
from hlo2graph.inspect.summary import summarise_result
from hlo2graph.inspect.timing import Timings, measure
from hlo2graph.inspect.verdict import cuda_verdict
from hlo2graph.ops.spec import Array
from hlo2graph.program.stats import plan_stats

NOTICED = 1e-3  # seconds from which a stage of loading is listed
GRAPH_STAGES = ("build", "instantiate", "upload")


def run_cuda_session(
    executable: CudaExecutable,
    args: Sequence[Array],
    wishes: Wishes,
    *,
    module: Module | None,
    stages: tuple[Stage, ...] = (),
    settings: tuple[str, ...] = (),
    inputs_given: bool = False,
) -> tuple[RunReport, tuple[Array, ...]]:
    """Run, check and measure; return the report and the results."""
    plan, device, memory = executable.plan, executable.device, executable.memory
    results, checks = _results(executable, args, wishes, module)
    named = zip(plan.outputs, results, strict=True)
    stats, timings = plan_stats(plan), _timings(executable, args, wishes)
    captured = Captured.of(plan, executable.choices.capture)
    built = sum(seconds for name, seconds in executable.stages if name in GRAPH_STAGES)
    report = RunReport(
        plan=plan,
        stats=stats,
        backend="cuda",
        machine=f"{device.name}, {device.arch}, driver {device.driver_text}",
        seed=None if inputs_given else wishes.seed,
        results=tuple(summarise_result(b.name, b.shape, array) for b, array in named),
        checks=checks,
        stages=(*stages, *_stages(executable)),
        timings=timings,
        settings=(
            *settings,
            *_chosen(executable.choices),
            *(("matmul tf32",) if executable.tf32 else ()),
            *(("cold L2",) if wishes.cold_l2 and timings else ()),
        ),
        verdict=(
            *(cuda_verdict(timings, built, stats, executable.serial.is_steered) if timings else ()),
            *(f"{note[0].upper()}{note[1:]}." for note in executable.notes),
        ),
        profile=profile(executable, args) if wishes.profile else None,
        memory=memory,
        captured=captured if captured.alone else None,
    )
    return report, results


def _chosen(choices: Choices) -> tuple[str, ...]:
    """Return the choices about graphs that are not the default ones."""
    usual = Choices()
    return tuple(
        f"{name} {getattr(choices, name)}"
        for name in ("capture", "temporaries")
        if getattr(choices, name) != getattr(usual, name)
    )


def _stages(executable: CudaExecutable) -> tuple[Stage, ...]:
    """Return what took a while, and how many kernels there were to compile."""
    cached = ", cached" if executable.cached_units == executable.units else ""
    named = {"compile kernels": f"compile {plural(executable.kernels, 'kernel')}{cached}"}
    return tuple(
        Stage(named.get(name, name), seconds)
        for name, seconds in executable.stages
        if seconds >= NOTICED or name in (*GRAPH_STAGES, *named)
    )


def _timings(executable: CudaExecutable, args: Sequence[Array], wishes: Wishes) -> Timings | None:
    if wishes.budget is None:
        return None
    wishes.waiting.hold()
    return measure(CudaRunner(executable, args, cold_l2=wishes.cold_l2), wishes.budget)


def _results(
    executable: CudaExecutable, args: Sequence[Array], wishes: Wishes, module: Module | None
) -> tuple[tuple[Array, ...], tuple[Check, ...]]:
    wishes.waiting.say("run")
    if wishes.reference == "none":
        return poisoned_run(executable, "graph", args), ()
    others = random_inputs(executable.plan.inputs, wishes.seed + 1)
    results, checks = check_device(executable, args, others)
    return results, (
        *check_reference(executable.plan, args, results, wishes, module, tf32=executable.tf32),
        *checks,
    )
