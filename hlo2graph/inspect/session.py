"""One run of a program: results, checks against a reference and in other orders, timings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import numpy as np

from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import InputError
from hlo2graph.hlo import Module
from hlo2graph.inspect.ahead import NOBODY, Ahead, Waiting
from hlo2graph.inspect.compare import Comparison, Tolerance, compare, tolerance_for
from hlo2graph.inspect.figures import plural
from hlo2graph.inspect.host_runner import HostRunner
from hlo2graph.inspect.narrowed import narrowed_tolerances
from hlo2graph.inspect.profile import RUNS, host_profile, longest_thunk
from hlo2graph.inspect.reference import host_results, pinned_results
from hlo2graph.inspect.report import RunReport, Stage
from hlo2graph.inspect.rounding import has_rounds, moved_by_rounding, reaches_across
from hlo2graph.inspect.self_check import ORDERS, Check, check_orders
from hlo2graph.inspect.summary import summarise_result
from hlo2graph.inspect.tf32 import loosened, moved_by_tf32
from hlo2graph.inspect.timing import Budget, Timings, measure
from hlo2graph.inspect.vectors import makes_vectors, results_of_same_vectors
from hlo2graph.inspect.xla import xla_results
from hlo2graph.ops.spec import Array
from hlo2graph.passes.draft import is_settled
from hlo2graph.passes.sizes.settle_sizes import settle_sizes
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import PlanStats, plan_stats

HOST_MODES = 2
SLOW_REFERENCE = (
    "what to compare with takes long to compute, how long is not known "
    "(--reference none leaves that out)"
)
ACROSS = "the last bits of the arguments move results as far as these reach"
SAME_VECTORS = "given its signs of singular vectors and eigenvectors,"
UNTOLD_VECTORS = "which may give vectors other signs, and does not tell those in loops"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to check and to measure.

    reference: host, xla or none. relative, absolute: tolerances in place of the table's.
    seed: of random inputs and orders. threads: of the pool. budget: None measures nothing.
    cold_l2: on cuda, whether each measured run finds nothing of the program in the cache.
    profile: whether to look at when each node runs.
    waiting: who is told what is going on.
    """

    reference: str = "host"
    relative: float | None = None
    absolute: float | None = None
    seed: int = 0
    threads: int = 2
    budget: Budget | None = None
    cold_l2: bool = False
    profile: bool = False
    waiting: Waiting = NOBODY


def run_session(
    executable: HostExecutable,
    args: Sequence[Array],
    wishes: Wishes,
    *,
    module: Module | None,
    stages: tuple[Stage, ...] = (),
    settings: tuple[str, ...] = (),
    inputs_given: bool = False,
) -> tuple[RunReport, tuple[Array, ...]]:
    """Run, check and measure; return the report and the results.

    `module` is what to evaluate as the reference; without one (a thunk sequence has none) only
    orders are checked.
    """
    plan, stats = executable.plan, plan_stats(executable.plan)
    results = _first_run(executable, args, wishes, module)
    named = zip(plan.outputs, results, strict=True)
    report = RunReport(
        plan=plan,
        stats=stats,
        backend="host",
        machine=f"NumPy {np.__version__}, {_cores()} cores",
        seed=None if inputs_given else wishes.seed,
        results=tuple(summarise_result(b.name, b.shape, array) for b, array in named),
        checks=_checks(executable, args, results, wishes, module),
        stages=stages,
        timings=_timings(executable, args, wishes),
        settings=settings,
        profile=host_profile(executable, args, wishes.threads) if wishes.profile else None,
        longest=longest_thunk(executable, args) if _is_timed(stats, wishes) else None,
    )
    return report, results


def _first_run(
    executable: HostExecutable, args: Sequence[Array], wishes: Wishes, module: Module | None
) -> tuple[Array, ...]:
    """Run, and say what is to come if that takes a while."""
    checks = 0 if wishes.reference == "none" else 2 * ORDERS + (module is not None)
    is_timed = _is_timed(plan_stats(executable.plan), wishes)
    pooled = 0 if wishes.reference == "none" else ORDERS
    stamped = (RUNS + 1) * wishes.profile + is_timed
    ahead = Ahead(checks, wishes.budget, HOST_MODES, stamped, pooled)
    wishes.waiting.say("run", ahead.first())
    start = perf_counter()
    results = executable(*args)
    if text := ahead.told(perf_counter() - start):
        wishes.waiting.note(text)
    return results


def _is_timed(stats: PlanStats, wishes: Wishes) -> bool:
    """Tell whether it is looked at which thunk takes longest: where some may run side by side."""
    return wishes.budget is not None and stats.widest > 1


def _timings(executable: HostExecutable, args: Sequence[Array], wishes: Wishes) -> Timings | None:
    if wishes.budget is None:
        return None
    wishes.waiting.hold()
    return measure(HostRunner(executable, args, threads=wishes.threads), wishes.budget)


def default_threads() -> int:
    """Return how many threads a pool gets unless told: the cores there are, at least two."""
    return max(2, _cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _checks(
    executable: HostExecutable,
    args: Sequence[Array],
    results: Sequence[Array],
    wishes: Wishes,
    module: Module | None,
) -> tuple[Check, ...]:
    if wishes.reference == "none":
        return ()
    orders = check_orders(
        executable,
        args,
        results,
        seed=wishes.seed,
        threads=wishes.threads,
        say=wishes.waiting.say,
    )
    return (*check_reference(executable.plan, args, results, wishes, module), *orders)


def check_reference(
    plan: Plan,
    args: Sequence[Array],
    results: Sequence[Array],
    wishes: Wishes,
    module: Module | None,
    *,
    tf32: bool = False,
) -> tuple[Check, ...]:
    """Compare results with the reference that was asked for; without a module there is none.

    `tf32` says that products of f32 were rounded to TF32.
    """
    if module is None:
        if wishes.reference == "xla":
            raise InputError("--reference xla needs HLO; a thunk sequence cannot be given to XLA")
        return ()
    given, module = module, settle_sizes(module)
    wishes.waiting.say(f"compare with {wishes.reference}", SLOW_REFERENCE)
    if wishes.reference == "xla":
        against, want = _by_xla(given, module, args)
    else:
        against, want = "the program evaluated as written", host_results(module, args)
    pinned = pinned_results(module)
    tolerances = _tolerances(module, plan, wishes, tf32=tf32)
    held = _held_against(want, plan, results, tolerances, pinned)
    failed, vague = not all(c.ok for c in held), ""
    if failed and wishes.reference == "xla" and makes_vectors(module):
        if same := results_of_same_vectors(module, args):
            compared = _held_against(same.theirs, plan, same.ours, tolerances, pinned)
            as_host = replace(wishes, reference="host")
            own = check_reference(plan, args, results, as_host, module, tf32=tf32)
            return (*own, *_checked(f"{against}, {SAME_VECTORS}", compared, len(results)))
        against += f", {UNTOLD_VECTORS}"
    if failed and wishes.absolute is None:
        compare_with = partial(_held_against, want, plan, results, tolerances, pinned)
        more, vague, held = _loosely_held(module, args, want, held, compare_with, tf32=tf32)
        against += more
    return _checked(against, held, len(results), vague)


def _checked(
    against: str, held: tuple[Comparison, ...], results: int, vague: str = ""
) -> tuple[Check, ...]:
    """Return the check that these comparisons of so many results are, if there are some."""
    if loose := results - len(held):
        against += f" (but for {plural(loose, 'result')}: rng gives other bits elsewhere)"
    return (Check.of(against, held, vague),) if held else ()


def _loosely_held(
    module: Module,
    args: Sequence[Array],
    want: Sequence[Array],
    held: tuple[Comparison, ...],
    compare_with: Callable[[Sequence[float]], tuple[Comparison, ...]],
    *,
    tf32: bool,
) -> tuple[str, str, tuple[Comparison, ...]]:
    """Return comparisons as strict as rounding leaves them, behind what that is, in words.

    The second words say why they tell nothing, where that is so.
    compare_with: what compares, told how far rounding moves each result.
    """
    against = ""
    if tf32:
        held = compare_with(moved_by_tf32(module, args, want))
        against = ", as far as TF32 leaves it"
    if has_rounds(module) and not all(c.ok for c in held):
        for moved in moved_by_rounding(module, args):
            nearer = compare_with(moved)
            if all(c.ok for c in nearer):
                if any(map(reaches_across, moved, want)):
                    return against, ACROSS, nearer
                return f"{against}, as near as the last bits of the arguments leave it", "", nearer
    return against, "", held


def _by_xla(given: Module, settled: Module, args: Sequence[Array]) -> tuple[str, tuple[Array, ...]]:
    """Return XLA's results; it leaves to chance what lies behind a bounded one, so none is."""
    if is_settled(given.entry.result.shape):
        return "XLA:CPU", xla_results(given, args)
    return "XLA:CPU, given whole arrays", xla_results(settled, args)


def _tolerances(module: Module, plan: Plan, wishes: Wishes, *, tf32: bool) -> list[Tolerance]:
    """Return what each result may differ by: as asked for, else by what it was rounded to."""
    asked = {"relative": wishes.relative, "absolute": wishes.absolute}
    found = [tolerance_for(b.shape.dtype, tf32=tf32, **asked) for b in plan.outputs]
    is_asked = any(value is not None for value in asked.values())
    return found if is_asked else narrowed_tolerances(module, found)


def _held_against(
    want: Sequence[Array],
    plan: Plan,
    results: Sequence[Array],
    tolerances: Sequence[Tolerance],
    pinned: tuple[bool, ...],
    moved: Sequence[float] | None = None,
) -> tuple[Comparison, ...]:
    """Compare with a reference's results, those left out whose bits HLO does not pin.

    `moved` is how far rounding moves each of them.
    """
    found = []
    for at, (bound, result, reference) in enumerate(zip(plan.outputs, results, want, strict=True)):
        if pinned[at]:
            tolerance = tolerances[at] if moved is None else loosened(tolerances[at], moved[at])
            found.append(compare(result, reference, tolerance, bound.name))
    return tuple(found)
