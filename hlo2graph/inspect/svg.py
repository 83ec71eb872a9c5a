"""The few elements that our plots are made of, as SVG that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

INK, GRID, LEADER, PLAIN, MARKED = "#1f2430", "#d8dce3", "#9aa1ad", "#2563a8", "#c2410c"
FONT = "font-family='system-ui, sans-serif' font-size='12'"


def document(title: str, width: int, height: int, left: int, lines: Iterable[str]) -> str:
    """Return a whole file: its title stands at `left`, above what `lines` draw."""
    return "\n".join(
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
            f"viewBox='0 0 {width} {height}' role='img'>",
            f"<title>{escape(title)}</title>",
            f"<rect width='{width}' height='{height}' fill='white'/>",
            text(left, 24, title, "start", more=" font-weight='bold'"),
            *lines,
            "</svg>\n",
        )
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    """Return a straight line; `more` are attributes."""
    ends = f"x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}'"
    return f"<line {ends} stroke='{colour}'{more}/>"


def text(x: float, y: float, words: str, anchor: str, colour: str = INK, *, more: str = "") -> str:
    """Return words that start, end or have their middle at x; `more` are attributes."""
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'"
    return f"<text {place} {FONT} fill='{colour}'{more}>{escape(words)}</text>"
