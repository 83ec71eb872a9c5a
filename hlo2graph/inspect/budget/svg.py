"""The curve as a picture: time, longest path and width over the bytes of the arena, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import chain

from hlo2graph.inspect import svg
from hlo2graph.inspect.budget.report import BudgetPoint, BudgetReport
from hlo2graph.inspect.figures import bytes_text, time_text

WIDTH, HEIGHT = 980, 220  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 90, 210, 44, 40  # around its axes
TICKS = 4

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
    title = f"{report.module}, target {report.target}, on {report.device}"
    panels = [_panel(report, panel, 40 + k * HEIGHT) for k, panel in enumerate(PANELS)]
    return svg.document(title, WIDTH, tall, LEFT, chain.from_iterable(panels))


def _panel(report: BudgetReport, panel: Panel, top: int) -> Iterator[str]:
    name, value, said = panel
    points = report.points
    most_bytes = max([report.lower_bound, *(point.arena for point in points), 1])
    most = max([value(point) for point in points] + [0.0]) or 1.0
    base, high = top + HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM

    def x(arena: int) -> float:
        return LEFT + arena / most_bytes * (WIDTH - LEFT - RIGHT)

    def y(amount: float) -> float:
        return base - amount / most * high

    yield svg.text(LEFT, top + 16, name, "start")
    for tick in range(TICKS + 1):
        amount, arena = most * tick / TICKS, most_bytes * tick // TICKS
        yield svg.line(LEFT, y(amount), WIDTH - RIGHT, y(amount), svg.GRID)
        yield svg.text(LEFT - 8, y(amount) + 4, said(amount) if tick else "0", "end")
        yield svg.text(x(arena), base + 18, bytes_text(arena), "middle")
    if report.lower_bound:
        bound = x(report.lower_bound)
        yield svg.line(bound, base, bound, base - high, svg.INK, " stroke-dasharray='4 3'")
        yield svg.text(bound - 5, base - 6, "lower bound", "end")
    path = " ".join(f"{x(p.arena):.1f},{y(value(p)):.1f}" for p in points)
    yield f"<polyline points='{path}' fill='none' stroke='{svg.PLAIN}' stroke-width='1.5'/>"
    yield from _marks(points, [(x(p.arena), y(value(p))) for p in points], value, said)


def _marks(
    points: Sequence[BudgetPoint],
    places: Sequence[tuple[float, float]],
    value: Callable[[BudgetPoint], float],
    said: Callable[[float], str],
) -> Iterator[str]:
    """Yield a mark a point; the names stand beside, apart from one another."""
    used: list[tuple[float, float]] = []
    for point, (x, y) in zip(points, places, strict=True):
        colour = svg.MARKED if point.like else svg.PLAIN
        told = f"{point.name}: {bytes_text(point.arena)}, {said(value(point))}"
        yield (
            f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{5 if point.like else 3.5}' fill='{colour}'>"
            f"<title>{escape(told)}</title></circle>"
        )
        label = point.name + (f", as {point.like}" if point.like else "")
        low = y - 8
        while any(abs(x - other) < 150 and abs(low - height) < 13 for other, height in used):
            low -= 13
        used.append((x, low))
        yield svg.text(x + 7, low, label, "start", colour)
