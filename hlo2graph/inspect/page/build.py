"""The page's data, and the page around it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeAlias

from hlo2graph.hlo import Module
from hlo2graph.inspect.budget.time import estimated_seconds
from hlo2graph.inspect.durations import Durations, device_of
from hlo2graph.inspect.figures import in_all, plural
from hlo2graph.inspect.lifetimes import lifetimes
from hlo2graph.inspect.page.details import ModuleDetails, PlanDetails, Texts
from hlo2graph.inspect.page.layout import Rect, lay_out
from hlo2graph.inspect.picture import Node, Picture
from hlo2graph.inspect.picture.labels import arrow_label, label_lines
from hlo2graph.inspect.picture.palette import fills, line_of
from hlo2graph.inspect.timeline import simulated, traced
from hlo2graph.program.device_figures import DEVICES
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import plan_stats

Json: TypeAlias = dict[str, Any]
SCRIPTS = ("data.js", "view.js", "panels.js", "sidebar.js", "main.js")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the plans that the module could have, and whether it is the one that is drawn."""

    label: str
    plan: Plan
    is_shown: bool


def page(
    picture: Picture,
    *,
    plan: Plan | None,
    module: Module | None,
    durations: Durations | None,
    choices: Sequence[Choice] = (),
    colour: str = "kind",
) -> str:
    """Return the page. One of plan and module is what the picture shows.

    durations: of the plan's thunks. choices: other plans of the module, for the curve of memory
    against concurrency. colour: what nodes are coloured by at first, kind or time.
    """
    texts = Texts()
    if plan is not None:
        details: PlanDetails | ModuleDetails = PlanDetails(plan, module, texts)
    else:
        assert module is not None
        details = ModuleDetails(module, picture, texts)
    data = _graph(picture, details) | {"colour": colour, "memory": None, "timeline": None}
    data["curve"] = []
    if plan is not None and durations is not None:
        data["memory"] = _memory(plan)
        data["timeline"] = _timeline(plan, durations)
        data["curve"] = [_choice(choice) for choice in choices]
    data["texts"] = texts.all
    return _document(picture.caption[0], data)


def _graph(picture: Picture, details: PlanDetails | ModuleDetails) -> Json:
    layout = lay_out(picture)
    by_kind, by_time = fills(picture, "kind"), fills(picture, "time")
    place = {node.id: at for at, node in enumerate(picture.nodes)}
    nodes = [
        _node(node, layout.nodes[node.id])
        | {
            "owner": node.id in picture.owners,
            "fills": [by_kind[node.id], by_time[node.id]],
            "thunks": details.thunk_ids(node),
            "about": details.node(node),
        }
        for node in picture.nodes
    ]
    edges = []
    for arrow, way in zip(picture.arrows, layout.ways, strict=True):
        why, is_artefact = details.arrow(arrow)
        line = line_of(arrow)
        edges.append(
            {
                "src": place[arrow.src],
                "dst": place[arrow.dst],
                "label": arrow_label(arrow),
                "reason": arrow.reason,
                "colour": line.colour,
                "dash": line.dash,
                "critical": arrow.is_critical,
                "back": arrow.is_back,
                "way": [round(v, 1) for point in way for v in point],
                "why": why,
                "artefact": is_artefact,
            }
        )
    groups = [
        {"label": group.label, "box": _box(layout.groups[group.id]), "frame": not group.owner}
        for group in picture.groups
        if group.id in layout.groups
    ]
    return {
        "caption": list(picture.caption),
        "size": [layout.width, layout.height],
        "nodes": nodes,
        "edges": edges,
        "groups": groups,
    }


def _node(node: Node, rect: Rect) -> Json:
    return {
        "id": node.id,
        "kind": node.kind,
        "lines": label_lines(node, with_time=False),
        "tip": node.tooltip,
        "names": sorted(node.names),
        "critical": node.is_critical,
        "box": _box(rect),
    }


def _box(rect: Rect) -> list[float]:
    return [round(v, 1) for v in (rect.x, rect.y, rect.width, rect.height)]


def _memory(plan: Plan) -> Json:
    """Return the values of temporaries: offset, size, first and last time, thunk; and totals."""
    found = lifetimes(plan)
    bases: dict[int, int] = {}
    height = 0
    for value in found.values:
        if value.slice.allocation not in bases:
            bases[value.slice.allocation] = height
            height += plan.allocations[value.slice.allocation].size
    return {
        "bytes": height,
        "order": [f"t{id}" for id in found.order],
        "live": found.live_bytes(),
        "values": [
            [
                bases[v.slice.allocation] + v.slice.offset,
                v.slice.size,
                v.first,
                v.last,
                f"t{v.thunk}",
            ]
            for v in found.values
        ],
    }


def _timeline(plan: Plan, durations: Durations) -> Json:
    bars = traced(plan, durations) if durations.spans else simulated(plan, durations)
    return {
        "how": durations.how if durations.spans else f"simulated, with times {durations.how}",
        "span": max((bar.end for bar in bars), default=0.0),
        "lanes": max((bar.lane for bar in bars), default=-1) + 1,
        "bars": [[f"t{bar.id}", bar.start, bar.end, bar.lane] for bar in bars],
    }


def _choice(choice: Choice) -> Json:
    stats, device = plan_stats(choice.plan), device_of(choice.plan)
    return {
        "label": choice.label,
        "bytes": stats.arena_bytes,
        "width": stats.width,
        "path": stats.critical_path,
        "edges": plural(stats.edges_in_all, "edge") + " in all" * bool(in_all(stats)),
        "added": stats.added,
        "seconds": estimated_seconds(choice.plan, DEVICES[device]),
        "device": device,
        "shown": choice.is_shown,
    }


def _document(title: str, data: Json) -> str:
    """Return the template with style, data and program put in, in one pass over it."""
    assets = files("hlo2graph.inspect.page")

    def asset(name: str) -> str:
        return assets.joinpath(name).read_text(encoding="utf-8")

    parts = {
        "TITLE": "".join(f"&#{ord(char)};" for char in title if char.isprintable()),
        "STYLE": asset("page.css"),
        "DATA": _embedded(data),
        "SCRIPT": "".join(map(asset, SCRIPTS)),
    }
    pieces = asset("page.html").split("@@")
    return "".join(parts.get(piece, piece) for piece in pieces)


def _embedded(data: Json) -> str:
    """Return JSON that HTML reads as plain text: ASCII, without what could end its element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
