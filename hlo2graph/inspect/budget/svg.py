"""The curve as a picture: time, longest path and width over the bytes of the arena, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from hlo2graph.inspect.budget.report import BudgetPoint, BudgetReport
from hlo2graph.inspect.figures import bytes_text, time_text

WIDTH, HEIGHT = 980, 220  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 90, 210, 44, 40  # around its axes
TICKS = 4
INK, GRID, CURVE, XLA = "#1f2430", "#d8dce3", "#2563a8", "#c2410c"
FONT = "font-family='system-ui, sans-serif' font-size='12'"

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
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{tall}' "
        f"viewBox='0 0 {WIDTH} {tall}' role='img'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{WIDTH}' height='{tall}' fill='white'/>",
        f"<text x='{LEFT}' y='24' {FONT} font-weight='bold' fill='{INK}'>{escape(title)}</text>",
    ]
    for number, panel in enumerate(PANELS):
        lines += _panel(report, panel, 40 + number * HEIGHT)
    return "\n".join([*lines, "</svg>"]) + "\n"


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

    yield f"<text x='{LEFT}' y='{top + 16}' {FONT} fill='{INK}'>{escape(name)}</text>"
    for tick in range(TICKS + 1):
        amount, arena = most * tick / TICKS, most_bytes * tick // TICKS
        yield _line(LEFT, y(amount), WIDTH - RIGHT, y(amount), GRID)
        yield _text(LEFT - 8, y(amount) + 4, said(amount) if tick else "0", "end")
        yield _text(x(arena), base + 18, bytes_text(arena), "middle")
    if report.lower_bound:
        bound = x(report.lower_bound)
        yield _line(bound, base, bound, base - high, INK, " stroke-dasharray='4 3'")
        yield _text(bound - 5, base - 6, "lower bound", "end")
    path = " ".join(f"{x(p.arena):.1f},{y(value(p)):.1f}" for p in points)
    yield f"<polyline points='{path}' fill='none' stroke='{CURVE}' stroke-width='1.5'/>"
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
        colour = XLA if point.like else CURVE
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
        yield _text(x + 7, low, label, "start", colour)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    ends = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {ends} stroke='{colour}'{more}/>"


def _text(x: float, y: float, text: str, anchor: str, colour: str = INK) -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'"
    return f"<text {place} {FONT} fill='{colour}'>{escape(text)}</text>"
