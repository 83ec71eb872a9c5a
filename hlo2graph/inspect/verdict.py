"""What the timings mean, in words."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hlo2graph.inspect.figures import plural, time_text
from hlo2graph.inspect.timing import ModeTiming, Ratio, Timings
from hlo2graph.program.stats import PlanStats

CHAIN_WINS = 0.98  # of the graph's latency, below which the chain is named as the better way
DOMINANT = 0.75  # of a run: what one thunk must take to be named as what keeps others from helping
HANDOVER = 50e-6  # seconds a thunk, below which handing it to another Python thread rarely pays


@dataclass(frozen=True, slots=True)
class Longest:
    """The thunk that takes longest, and its share of the time that all take."""

    name: str
    share: float


def host_verdict(
    timings: Timings, stats: PlanStats, longest: Longest | None = None
) -> tuple[str, ...]:
    """Say which of one thread and the pool is faster, by how much, and why."""
    if timings.are_few:
        return doubts(timings)
    serial, graph = timings["serial"], timings["graph"]
    ratio = timings.ratios[timings.modes.index(graph)]
    compared = _comparison(ratio, timings.saved("graph"), timings.rounds)
    return (f"{compared} {_reason(ratio, serial, stats, longest)}", *doubts(timings))


def cuda_verdict(
    timings: Timings,
    built: float,
    stats: PlanStats,
    is_steered: bool,
) -> tuple[str, ...]:
    """Say what the graph bought over the serial stream and over its own nodes in a chain.

    `built` are the seconds that building, instantiating and uploading the graph took. `is_steered`
    says that the serial stream has loops or branches that the host decides.
    """
    if timings.are_few:
        return doubts(timings)
    serial, chain, graph = (timings[name] for name in ("serial", "chain", "graph"))
    ratio = timings.ratios[timings.modes.index(graph)]
    if not (ratio.is_faster or ratio.is_slower):
        same = (
            f"No difference that {plural(timings.rounds, 'round')} can tell ({interval(ratio)}x)."
        )
        return (same, *doubts(timings))
    worth = _worth(ratio, timings.saved("graph"), built)
    return (
        f"{worth} {_bound(serial, is_steered)} {_overlap(chain, graph, stats)}",
        *_better_in_a_chain(chain, graph),
        *doubts(timings),
    )


def _worth(ratio: Ratio, saved: float, built: float) -> str:
    if ratio.is_slower:
        return (
            f"The graph is slower: it takes {1 / ratio.value:.2f} times as long as the serial "
            f"stream ({1 / ratio.high:.2f} to {1 / ratio.low:.2f})."
        )
    runs = ceil(built / saved) if saved > 0 else 0
    return (
        f"The graph is worth it: {ratio.value:.2f} times as fast as the serial stream "
        f"({interval(ratio)}), {time_text(saved)} less a run; its {time_text(built)} of building "
        f"are paid for after {plural(runs, 'run')}."
    )


def _bound(serial: ModeTiming, is_steered: bool) -> str:
    """Compare what the host takes to enqueue the serial stream with what the device does of it."""
    if is_steered:
        return "In the serial stream the host waits for each decision of a loop or branch."
    enqueue, device = serial.enqueue or 0.0, serial.device or 0.0
    if enqueue > device:
        return (
            f"The serial stream is launch-bound: the host takes {time_text(enqueue)} to enqueue "
            f"what the device runs in {time_text(device)}."
        )
    return (
        f"The serial stream is device-bound: the device takes {time_text(device)}, the host "
        f"{time_text(enqueue)} to enqueue it."
    )


def _overlap(chain: ModeTiming, graph: ModeTiming, stats: PlanStats) -> str:
    if stats.widest <= 1:
        return f"{_alone(stats)}: there is nothing to overlap."
    if not chain.device or not graph.device:
        return ""
    times = chain.device / graph.device
    return (
        f"Of up to {stats.widest} thunks side by side the device made {times:.2f} times the speed "
        "of the same nodes in a chain."
    )


def _better_in_a_chain(chain: ModeTiming, graph: ModeTiming) -> tuple[str, ...]:
    """Say so where the same nodes one after another are done sooner than along the DAG."""
    if chain.median > CHAIN_WINS * graph.median:
        return ()
    less = time_text(graph.median - chain.median)
    return (
        f"In a chain the same nodes take {less} less: waiting across branches costs more than the "
        "overlap gains; --schedule serialize plans the chain.",
    )


def doubts(timings: Timings) -> tuple[str, ...]:
    """Say why the figures should not be trusted, if so."""
    if timings.is_reliable:
        return ()
    return (f"Unreliable: {'; '.join(timings.doubts)}.",)


def interval(ratio: Ratio) -> str:
    """Return `2.71 to 2.80`."""
    return f"{ratio.low:.2f} to {ratio.high:.2f}"


def _comparison(ratio: Ratio, saved: float, rounds: int) -> str:
    apart = time_text(abs(saved))
    if ratio.is_faster:
        return (
            f"The pool is faster: {ratio.value:.2f} times as fast as one thread "
            f"({interval(ratio)}), {apart} less a run."
        )
    if ratio.is_slower:
        return (
            f"The pool is slower: it takes {1 / ratio.value:.2f} times as long as one thread "
            f"({1 / ratio.high:.2f} to {1 / ratio.low:.2f}), {apart} more a run."
        )
    return (
        f"No difference that {plural(rounds, 'round')} can tell ({interval(ratio)} times as fast)."
    )


def _reason(ratio: Ratio, serial: ModeTiming, stats: PlanStats, longest: Longest | None) -> str:
    if stats.widest <= 1:
        return f"{_alone(stats)}: there is nothing to run side by side."
    each = serial.median / stats.nodes
    has_nested = stats.nodes_in_all > stats.nodes  # how often thunks inside run is not known
    at = "" if has_nested else f", at {time_text(each)} each on average"
    most = ""
    if longest is not None and longest.share >= DOMINANT:
        most = f"{longest.name} alone takes {longest.share:.0%} of the time"
    if ratio.is_faster:
        return f"Up to {stats.widest} thunks can overlap{at}{most and '; '}{most}."
    could = f"Up to {stats.widest} thunks could overlap{at}, but"
    if most:
        return f"{could} {most}."
    if has_nested or each < HANDOVER:
        more = "more than" if ratio.is_slower else "as much as"
        return (
            f"{could} handing them to other threads costs {more} that gains: Python runs one "
            "thread at a time except inside NumPy's larger loops."
        )
    return (
        f"{could} one already keeps busy what they share: Python itself outside NumPy's larger "
        "loops, NumPy's own threads, or the memory."
    )


def _alone(stats: PlanStats) -> str:
    if stats.nodes_in_all <= 1:
        return "There is one thunk" if stats.nodes_in_all else "There is no thunk"
    inside = ", in loops and branches too" if stats.nodes_in_all > stats.nodes else ""
    return f"The thunks form one chain{inside}"
