"""Figures as people read them: three digits and a unit."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.program.stats import PlanStats


def bytes_text(count: int) -> str:
    """Return `512 B`, `4.20 MB`, ... (powers of 1000)."""
    if count < 1000:
        return f"{count} B"
    return _scaled(count, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")))


def time_text(seconds: float) -> str:
    """Return `41.2 us`, `1.20 s`, ..."""
    return _scaled(seconds, ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))


def plural(count: int, noun: str) -> str:
    """Return `1 edge`, `1,204 edges`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch')) else 's'}"


def in_all(stats: PlanStats) -> str:
    """Return what stands behind a plan's counts: how many there are with loops and branches open.

    Nothing where there is no loop or branch.
    """
    if stats.nodes_in_all == stats.nodes:
        return ""
    counts = plural(stats.nodes_in_all, "thunk"), plural(stats.edges_in_all, "edge")
    return f"; in all {', '.join(counts)}"


def columns(rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Align cells: the first `left` columns to the left, the others to the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    scale, unit = next((u for u in units if abs(value) >= u[0] * 0.9995), units[-1])
    number = value / scale
    digits = 2 if abs(number) < 9.995 else 1 if abs(number) < 99.95 else 0
    return f"{number:.{digits}f} {unit}"
