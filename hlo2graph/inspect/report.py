"""What `run` prints: plain text, columns aligned, each figure with its mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from hlo2graph.inspect.figures import bytes_text, columns, in_all, plural, time_text
from hlo2graph.inspect.held import memory_text
from hlo2graph.inspect.self_check import Check
from hlo2graph.inspect.summary import Summary
from hlo2graph.inspect.timing import ModeTiming, Ratio, Timings
from hlo2graph.inspect.verdict import Longest, doubts, host_verdict, interval
from hlo2graph.program.one_device import caveats_of
from hlo2graph.program.plan import Bound, Plan
from hlo2graph.program.stats import PlanStats

if TYPE_CHECKING:
    from hlo2graph.backends.held import Memory
    from hlo2graph.inspect.captured import Captured
    from hlo2graph.inspect.profile import Profile

SHOWN = 12  # result leaves, or input leaves, that are listed one by one
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of getting the program ready, and the seconds it took."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything that one run found.

    machine: what it ran on, in words. settings: what else decided the figures (`matmul tf32`).
    seed: of random inputs; None where all were given. verdict: sentences, of the backend's own
    making where `timings` are not the host's. profile: when each node ran, if that was asked for.
    longest: the thunk that takes longest on the host, where one may run beside another.
    memory: what it holds of its GPU's. captured: how it is parted, where it is not one graph.
    """

    plan: Plan
    stats: PlanStats
    backend: str
    machine: str
    seed: int | None
    results: tuple[Summary, ...]
    checks: tuple[Check, ...] = ()
    stages: tuple[Stage, ...] = ()
    timings: Timings | None = None
    settings: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()
    profile: Profile | None = None
    memory: Memory | None = None
    captured: Captured | None = None
    longest: Longest | None = None

    @property
    def ok(self) -> bool:
        """Every check held."""
        return all(c.ok for c in self.checks)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What running as one replica makes of communication between devices."""
        return caveats_of(self.plan)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict, in words."""
        if self.timings is None:
            return self.verdict
        if self.verdict:
            return (*self.verdict, *doubts(self.timings))
        return host_verdict(self.timings, self.stats, self.longest)


def report_text(report: RunReport) -> str:
    """Return the report, without a final line break."""
    blocks = [
        [_header(report)],
        [
            *_labelled("inputs", [_inputs(report.plan.inputs)]),
            *_labelled("results", _results(report.results)),
            *_labelled("check", _checks(report.checks)),
            *_labelled("plan", _plan(report)),
            *_labelled("graphs", report.captured.summary() if report.captured else []),
            *_labelled("memory", [memory_text(report.memory)] if report.memory else []),
            *_labelled("built", _stages(report.stages)),
        ],
    ]
    if report.timings is not None:
        blocks.append(_table(report.timings))
    if report.sentences:
        blocks.append([line for s in report.sentences for line in wrap(s, WIDTH - 2)])
    if report.profile is not None:
        from hlo2graph.inspect.profile import profile_text

        blocks.append(profile_text(report.profile).splitlines())
    head, *rest = blocks
    body = ["\n".join(f"  {line}".rstrip() for line in block) for block in rest]
    return "\n".join([*head, *body[:1], *(f"\n{block}" for block in body[1:])])


def _header(report: RunReport) -> str:
    plan = report.plan
    settings = [
        f"fuse {plan.fuse}",
        *report.settings,
        plan.schedule,
        "inputs given" if report.seed is None else f"seed {report.seed}",
    ]
    target = "" if plan.target == "host" else f" · target {plan.target}"
    return f"{plan.name}   {report.backend}: {report.machine}{target} · {' · '.join(settings)}"


def _labelled(label: str, lines: Sequence[str]) -> list[str]:
    wrapped = [piece for line in lines for piece in _hanging(line)]
    return [f"{label if not at else '':<9}{line}" for at, line in enumerate(wrapped)]


def _hanging(line: str) -> list[str]:
    return wrap(line, WIDTH - 11, subsequent_indent="  ", break_long_words=False) or [""]


def _inputs(inputs: Sequence[Bound]) -> str:
    if not inputs:
        return "none"
    shown = [f"{b.name} {b.shape.without_layout_text()}" for b in inputs[:SHOWN]]
    if len(inputs) > SHOWN:
        shown.append(f"and {len(inputs) - SHOWN} more")
    return f"{len(inputs)}, {bytes_text(sum(b.shape.size for b in inputs))}: {', '.join(shown)}"


def _results(results: Sequence[Summary]) -> list[str]:
    if not results:
        return ["none"]
    rows = [(r.name, r.shape.without_layout_text(), str(r)) for r in results[:SHOWN]]
    lines = columns(rows, left=3)
    if len(results) > SHOWN:
        rest = results[SHOWN:]
        nans = sum(r.nans for r in rest)
        lines.append(f"and {len(rest)} more{f', with {nans:,} NaN' if nans else ''}")
    return lines


def _checks(checks: Sequence[Check]) -> list[str]:
    """Say what was found, and where there was nothing to compare with, that too."""
    alone = bool(checks) and not any(c.comparisons for c in checks)
    return [*["compared with no reference, only with itself"] * alone, *map(check_text, checks)]


def check_text(check: Check) -> str:
    """Return one line: what the results were held against, and how they fared."""
    if not check.comparisons:
        verb = "same bits as" if check.ok else "FAILED: other bits than"
        return f"{verb} {check.against} in {check.how}"
    wrong = [c for c in check.comparisons if not c.ok]
    if wrong:
        more = f"; {len(wrong)} of {plural(len(check.comparisons), 'result')} differ"
        return f"FAILED: not {check.against}: {wrong[0]}{more if len(wrong) > 1 else ''}"
    worst = check.worst
    if not worst.worst:
        return f"equal to {check.against}, exactly"
    if check.vague:
        return (
            f"not comparable with {check.against}: {check.vague}. The largest difference is "
            f"{worst.worst:.2g}, the largest value {worst.reach:.2g}"
        )
    wide = next((c for c in check.comparisons if c.is_wide and c.worst), None)
    of = f"; wide for {wide.name}, whose largest value is {wide.reach:.2g}" if wide else ""
    return (
        f"equal to {check.against} within {worst.tolerance} "
        f"(largest difference {worst.worst:.2g}{of})"
    )


def _plan(report: RunReport) -> list[str]:
    stats = report.stats
    listed = ", ".join(f"{count:,} {hazard}" for hazard, count in stats.by_hazard.items())
    return [
        f"{plural(stats.nodes, 'thunk')}, {plural(stats.edges, 'edge')}"
        f"{f' ({listed})' if listed else ''}, width {stats.width}, "
        f"critical path {stats.critical_path}{in_all(stats)}",
        f"arena {bytes_text(stats.arena_bytes)}, alive at once "
        f"{bytes_text(stats.lower_bound_bytes)}, sum of buffers {bytes_text(stats.sum_bytes)}",
    ]


def _stages(stages: Sequence[Stage]) -> list[str]:
    if not stages:
        return []
    parts = [f"{s.name} {time_text(s.seconds)}" for s in stages]
    return [f"{', '.join(parts)}; together {time_text(sum(s.seconds for s in stages))}"]


def _table(timings: Timings) -> list[str]:
    with_enqueue = any(m.enqueue is not None for m in timings.modes)
    with_device = any(m.device is not None for m in timings.modes)
    head = ["", plural(timings.rounds, "round"), *(["enqueue"] if with_enqueue else [])]
    head += [*(["device"] if with_device else []), *_percentile_heads(timings), "", ""]
    rows = [head]
    for timing, ratio in zip(timings.modes, timings.ratios, strict=True):
        row = [timing.mode.name, timing.mode.how]
        row += [_known(timing.enqueue)] if with_enqueue else []
        row += [_known(timing.device)] if with_device else []
        row += [time_text(timing.percentile(p)) for p in timings.percentiles]
        rows.append([*row, *_ratio_cells(timing, ratio, timings)])
    return [*columns(rows, left=2), *_what_the_last_column_is(timings)]


def _what_the_last_column_is(timings: Timings) -> list[str]:
    """Say it where medians of all runs, which are not paired by round, say the opposite."""
    first = timings.modes[0]
    pairs = zip(timings.modes, timings.ratios, strict=True)
    if all((first.median - m.median) * (r.value - 1) >= 0 for m, r in pairs):
        return []
    name = first.mode.name
    return [f"last column: times as fast as {name} in the same round, their median"]


def _percentile_heads(timings: Timings) -> list[str]:
    heads = [f"p{p:g}" for p in timings.percentiles]
    return [f"latency {heads[0]}", *heads[1:]] if heads else []


def _known(seconds: float | None) -> str:
    return "-" if seconds is None else time_text(seconds)


def _ratio_cells(timing: ModeTiming, ratio: Ratio, timings: Timings) -> list[str]:
    if timing is timings.modes[0]:
        return ["1.00x", ""]
    between = f"({interval(ratio)})" if not timings.are_few else ""
    return [f"{ratio.value:.2f}x", between]
