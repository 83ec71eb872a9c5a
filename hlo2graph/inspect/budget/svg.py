"""The curve as a picture: time, longest path and width over the bytes of the arena, as SVG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import chain, pairwise
from math import ceil, dist

from hlo2graph.inspect import svg
from hlo2graph.inspect.budget.labels import LINE, Box, Labels, around
from hlo2graph.inspect.budget.report import BudgetPoint, BudgetReport
from hlo2graph.inspect.dot_labels import shortened
from hlo2graph.inspect.figures import bytes_text, time_text

WIDTH, HEIGHT = 980, 220  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 90, 210, 44, 40  # around its axes
TICKS, MARK = 4, 5  # MARK: radius of a point's

Panel = tuple[str, Callable[[BudgetPoint], float], Callable[[float], str]]


def _count(value: float) -> str:
    return f"{value:,.0f}"


PANELS: tuple[Panel, ...] = (
    ("estimated time", lambda point: point.seconds, time_text),
    ("longest path, thunks", lambda point: float(point.path), _count),
    ("width, thunks", lambda point: float(point.width), _count),
)


def budget_svg(report: BudgetReport) -> str:
    """Return one SVG file, which needs nothing else."""
    tall = 40 + len(PANELS) * HEIGHT
    about = f"target {report.target}, on {report.device}, by size of the arena"
    title = f"{shortened(report.module)}, {about}"
    panels = [_panel(report, panel, 40 + k * HEIGHT) for k, panel in enumerate(PANELS)]
    return svg.document(title, WIDTH, tall, LEFT, chain.from_iterable(panels))


def _panel(report: BudgetReport, panel: Panel, top: int) -> Iterator[str]:
    name, value, said = panel
    points = report.points
    most_bytes, parts = _scale(max([report.lower_bound, *(p.arena for p in points), 1]), True)
    most, ticks = _scale(max([value(point) for point in points] + [0.0]), said is _count)
    base, high = top + HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM

    def x(arena: float) -> float:
        return LEFT + arena / most_bytes * (WIDTH - LEFT - RIGHT)

    def y(amount: float) -> float:
        return base - amount / most * high

    yield svg.text(LEFT, top + 16, name, "start")
    for amount in (most * tick / ticks for tick in range(ticks + 1)):
        yield svg.line(LEFT, y(amount), WIDTH - RIGHT, y(amount), svg.GRID)
        yield svg.text(LEFT - 8, y(amount) + 4, said(amount) if amount else "0", "end")
    for arena in (most_bytes * tick / parts for tick in range(parts + 1)):
        yield svg.text(x(arena), base + 18, bytes_text(int(arena)), "middle")
    places = [(x(p.arena), y(value(p))) for p in points]
    frame = Box(LEFT, top + 18, WIDTH, base)
    labels = Labels(frame, [around(*place, MARK) for place in places], tuple(_curve(places)))
    bound = x(report.lower_bound)
    if report.lower_bound:
        yield svg.line(bound, base, bound, base - high, svg.INK, " stroke-dasharray='4 3'")
        labels.taken.append(Box(bound - 1, base - high, bound + 1, base))
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
    yield f"<polyline points='{path}' fill='none' stroke='{svg.PLAIN}' stroke-width='1.5'/>"
    named: dict[tuple[float, float], list[tuple[str, str]]] = defaultdict(list)
    for point, place in zip(points, places, strict=True):
        colour = svg.MARKED if point.like else svg.PLAIN
        yield _mark(place, f"{point.name}: {bytes_text(point.arena)}, {said(value(point))}", colour)
        label = point.name + (f", as {point.like}" if point.like else "")
        named[place].append((label, colour))
    for place, lines in named.items():
        yield from _words(labels, around(*place, 0), lines)
    if report.lower_bound:
        yield from _words(
            labels, Box(bound, base - high, bound, base), [("alive at once", svg.INK)]
        )


def _scale(most: float, is_count: bool) -> tuple[float, int]:
    """Return where an axis ends, and how many steps it has: whole ones where things are counted."""
    if not is_count:
        return most or 1.0, TICKS
    step = ceil(most / TICKS) or 1
    ticks = ceil(most / step) or 1
    return float(step * ticks), ticks


def _curve(places: Sequence[tuple[float, float]]) -> Iterator[Box]:
    """Yield what covers the lines from each place to the next."""
    for (x, y), (to_x, to_y) in pairwise(places):
        steps = int(max(abs(to_x - x), abs(to_y - y)) / MARK) + 1
        for step in range(steps):
            part = step / steps
            yield around(x + part * (to_x - x), y + part * (to_y - y), MARK / 2)


def _mark(place: tuple[float, float], told: str, colour: str) -> str:
    x, y = place
    radius = MARK if colour == svg.MARKED else MARK * 0.7
    return (
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius}' fill='{colour}'>"
        f"<title>{escape(told)}</title></circle>"
    )


def _words(labels: Labels, of: Box, lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield lines of text, each with its colour, and what leads from far ones to what they name."""
    box = labels.place(of.left, of.bottom, [words for words, _ in lines])
    x, y = min(max(of.left, box.left), box.right), min(max(of.bottom, box.top), box.bottom)
    start = of.left, min(max(y, of.top), of.bottom)
    if dist(start, (x, y)) > LINE:
        yield svg.line(*start, x, y, svg.LEADER)
    across, anchor = (box.right, "end") if box.right < of.left else (box.left, "start")
    for number, (words, colour) in enumerate(lines):
        yield svg.text(across, box.top + (number + 1) * LINE - 3, words, anchor, colour)
