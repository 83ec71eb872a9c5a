"""Colours: of nodes by kind or by time, of arrows by reason; the same in every format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hlo2graph.errors import InputError
from hlo2graph.inspect.picture.model import Arrow, Picture
from hlo2graph.program.thunks import Hazard

COLOURS = ("kind", "time")
PLAIN = "#f0f0f0"
CRITICAL = "#c0392b"

FILL: Mapping[str, str] = MappingProxyType(
    {
        "kernel": "#dceaf7",
        "library": "#fde4c3",
        "copy": "#ececec",
        "fill": "#f6f6f6",
        "collective": "#e8daf3",
        "while": "#dcf0dc",
        "conditional": "#dcf0dc",
        "start": "#ffffff",
        "condition": "#cfe8cf",
        "note": "#ffffff",
        "parameter": "#fff7d6",
        "constant": "#f6f6f6",
        "elementwise": "#dceaf7",
        "shaping": "#ececec",
        "fusion": "#d5f0ee",
        "call": "#dcf0dc",
        "work": "#fde4c3",
    }
)
_HEAT = ("#f7f7f7", "#fdeedd", "#fddbb0", "#fdc48c", "#fba673", "#f68f63")
"""From no time to the most that any node takes."""


@dataclass(frozen=True, slots=True)
class Line:
    """How an arrow is drawn: solid, dashed or dotted."""

    colour: str
    dash: str = "solid"


LINES: Mapping[str, Line] = MappingProxyType(
    {
        Hazard.RAW: Line("#333333"),
        Hazard.WAR: Line("#b03a2e", "dashed"),
        Hazard.WAW: Line("#b03a2e", "dotted"),
        Hazard.CONTROL: Line("#1f6fb5", "dashed"),
        Hazard.EFFECT: Line("#7d3c98", "dashed"),
        Hazard.REUSE: Line("#d35400", "dashed"),
        Hazard.INPLACE: Line("#d35400", "dotted"),
        Hazard.ORDER: Line("#999999", "dotted"),
        "operand": Line("#333333"),
        "launch": Line("#999999", "dashed"),
    }
)


def fills(picture: Picture, colour: str) -> dict[str, str]:
    """Return the colour of each node, by id; `colour` is kind or time.

    Raises InputError for another.
    """
    if colour not in COLOURS:
        raise InputError(f"colour is by {' or '.join(COLOURS)}, not by {colour!r}")
    if colour == "kind":
        return {node.id: FILL.get(node.kind, PLAIN) for node in picture.nodes}
    most = max((node.seconds or 0.0 for node in picture.nodes if not node.group), default=0.0)
    return {node.id: _heat(node.seconds, most) for node in picture.nodes}


def _heat(seconds: float | None, most: float) -> str:
    if not seconds or not most:
        return PLAIN
    return _HEAT[min(len(_HEAT) - 1, int(seconds / most * len(_HEAT)))]


def line_of(arrow: Arrow) -> Line:
    """Return how an arrow is drawn."""
    return LINES[arrow.reason]
