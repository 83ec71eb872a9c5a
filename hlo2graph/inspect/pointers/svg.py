"""What a call costs by strategy and by how arrays move, as a picture: bars, a panel a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from hlo2graph.inspect import svg
from hlo2graph.inspect.dot_labels import shortened
from hlo2graph.inspect.figures import time_text
from hlo2graph.inspect.pointers.lab import PATTERNS, Lab, Row

WIDTH, LEFT, RIGHT = 860, 110, 190
TOP, BAR, GAP = 40, 18, 6  # above the panels; of a bar, and below it
MEANING = {
    "stay": "the same arrays at each call",
    "rotate": "one of a few sets of arrays",
    "new": "arrays where none has been before",
}


def lab_svg(lab: Lab) -> str:
    """Return one SVG file: latency of each strategy under each pattern, the best one marked."""
    most = max([row.latency for row in lab.rows] + [0.0]) or 1.0
    tall, panels = TOP, []
    for pattern in PATTERNS:
        rows = [row for row in lab.rows if row.pattern == pattern]
        panels.append(list(_panel(pattern, rows, tall, most)))
        tall += 34 + len(rows) * (BAR + GAP)
    title = f"{shortened(lab.name)}: median time until the results of a call are there"
    return svg.document(title, WIDTH, tall + 16, LEFT, chain.from_iterable(panels))


def _panel(pattern: str, rows: list[Row], top: int, most: float) -> Iterator[str]:
    yield svg.text(LEFT, top + 18, f"{pattern}: {MEANING[pattern]}", "start")
    best = min((row.latency for row in rows), default=0.0)
    for number, row in enumerate(rows):
        y = top + 28 + number * (BAR + GAP)
        wide = row.latency / most * (WIDTH - LEFT - RIGHT)
        colour = svg.MARKED if row.latency == best else svg.PLAIN
        yield svg.text(LEFT - 8, y + 13, row.strategy, "end")
        yield f"<rect x='{LEFT}' y='{y}' width='{wide:.1f}' height='{BAR}' fill='{colour}'/>"
        told = f"{time_text(row.latency)}, {row.ratio:.2f} times the best"
        yield svg.text(LEFT + wide + 6, y + 13, told, "start")
