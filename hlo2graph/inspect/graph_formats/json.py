"""A picture as JSON.

Schema `hlo2graph.graph`, version 1:

    schema   {"name": "hlo2graph.graph", "version": 1}
    caption  [string]; the first is the title
    nodes    [{"id", "name", "kind", "lines": [string], "tooltip", "group", "critical", "count",
             "seconds"}]; seconds is null where it is not known
    edges    [{"src", "dst", "reason", "label", "tooltip", "critical", "count", "back"}]; count is
             how many edges it stands for, back: from one of a repeat's layers to the next
    groups   [{"id", "label", "owner", "parent", "count"}]; a group is inside the node `owner`, or
             else a part of the group `parent` that stands for `count`; '' is the outermost
"""

from __future__ import annotations

import json
from typing import Any

from hlo2graph.inspect.picture import Arrow, Group, Node, Picture

SCHEMA = {"name": "hlo2graph.graph", "version": 1}


def json_text(picture: Picture) -> str:
    """Return the picture as JSON text, in ASCII."""
    return json.dumps(picture_json(picture), indent=1) + "\n"


def picture_json(picture: Picture) -> dict[str, Any]:
    """Return the picture as the module's docstring has it."""
    return {
        "schema": dict(SCHEMA),
        "caption": list(picture.caption),
        "nodes": [_node(node) for node in picture.nodes],
        "edges": [_edge(arrow) for arrow in picture.arrows],
        "groups": [_group(group) for group in picture.groups],
    }


def _node(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "name": node.name,
        "kind": node.kind,
        "lines": list(node.lines),
        "tooltip": node.tooltip,
        "group": node.group,
        "critical": node.is_critical,
        "count": node.count,
        "seconds": node.seconds,
    }


def _edge(arrow: Arrow) -> dict[str, Any]:
    return {
        "src": arrow.src,
        "dst": arrow.dst,
        "reason": arrow.reason,
        "label": arrow.label,
        "tooltip": arrow.tooltip,
        "critical": arrow.is_critical,
        "count": arrow.count,
        "back": arrow.is_back,
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "id": group.id,
        "label": group.label,
        "owner": group.owner,
        "parent": group.parent,
        "count": group.count,
    }
