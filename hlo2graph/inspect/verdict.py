"""What the timings mean, in words."""

from __future__ import annotations

from hlo2graph.inspect.figures import time_text
from hlo2graph.inspect.timing import ModeTiming, Ratio, Timings

HANDOVER = 50e-6  # seconds a thunk, below which handing it to another Python thread rarely pays


def host_verdict(timings: Timings, thunks: int, width: int) -> tuple[str, ...]:
    """Say which of one thread and the pool is faster, by how much, and why."""
    serial, graph = timings["serial"], timings["graph"]
    ratio = timings.ratios[timings.modes.index(graph)]
    compared = _comparison(ratio, serial, graph, timings.rounds)
    return (f"{compared} {_reason(ratio, serial, thunks, width)}", *doubts(timings))


def doubts(timings: Timings) -> tuple[str, ...]:
    """Say why the figures should not be trusted, if so."""
    if timings.is_reliable:
        return ()
    return (f"Unreliable: {'; '.join(timings.doubts)}.",)


def interval(ratio: Ratio) -> str:
    """Return `2.71 to 2.80`."""
    return f"{ratio.low:.2f} to {ratio.high:.2f}"


def _comparison(ratio: Ratio, serial: ModeTiming, graph: ModeTiming, rounds: int) -> str:
    apart = time_text(abs(serial.median - graph.median))
    if ratio.is_faster and rounds > 1:
        return (
            f"The pool is faster: {ratio.value:.2f} times as fast as one thread "
            f"({interval(ratio)}), {apart} less a run."
        )
    if ratio.is_slower and rounds > 1:
        return (
            f"The pool is slower: it takes {1 / ratio.value:.2f} times as long as one thread "
            f"({1 / ratio.high:.2f} to {1 / ratio.low:.2f}), {apart} more a run."
        )
    return f"No difference that {rounds} rounds can tell ({interval(ratio)} times as fast)."


def _reason(ratio: Ratio, serial: ModeTiming, thunks: int, width: int) -> str:
    if width <= 1:
        return "The thunks form one chain: there is nothing to run side by side."
    each = serial.median / max(thunks, 1)
    if ratio.is_faster:
        return f"Up to {width} thunks can overlap, and at {time_text(each)} each it pays."
    if each < HANDOVER:
        return (
            f"Up to {width} thunks could overlap, but at {time_text(each)} each, handing one to "
            "another thread costs as much as running it; Python runs one thread at a time except "
            "inside NumPy's larger loops."
        )
    return (
        f"Up to {width} thunks could overlap, but NumPy's own threads or the memory are already "
        "kept busy by one."
    )
