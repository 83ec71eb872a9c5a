"""A Plan as JSON: what `plan --json` prints.

Schema `hlo2graph.plan`, version 1; offsets and sizes in bytes:

    schema       {"name": "hlo2graph.plan", "version": 1}
    module, target, fuse: strings
    allocations  [{"index", "size", "kind"}]; kind: parameter, constant, live-out, temp
    thunks       [{"id", "kind", "name", "reads": [SLICE], "writes": [SLICE], "hlo": string or null,
                  "computations": {"condition", "body", "branch_0", ...: {"thunks", "edges"}}}]
    edges        [{"src", "dst", "hazard", "allocation", "offset", "size"}]; src and dst: ids
    stats        {"nodes", "edges", "width", "critical_path", "arena_bytes", "lower_bound_bytes",
                  "nodes_in_all", "edges_in_all"}; a loop is one node, but in all its own count too
    SLICE        {"allocation", "offset", "size"}
    fusion       with --why only: hlo2graph/inspect/why.py describes it

Thunk ids are those of the plan's text without the `t`, allocation indices are the plan's own, in
nested sequences too. A loop's reads and writes are the union over what is inside.
"""

from __future__ import annotations

from typing import TypeAlias

from hlo2graph.hlo.printer import format_computation
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import plan_stats
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Collective, Edge, Kernel, Library, Slice, Thunk
from hlo2graph.program.uses import reads, writes

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

SCHEMA: dict[str, Json] = {"name": "hlo2graph.plan", "version": 1}


def plan_json(plan: Plan) -> dict[str, Json]:
    """Return what `json.dumps` takes: thunks, edges, allocations and figures of a plan.

    A thunk's `hlo` is the text of the computation that it runs, null where it runs none. An edge
    that is about no bytes has null for allocation, offset and size.
    """
    stats = plan_stats(plan)
    hlo = {name: format_computation(c) for name, c in plan.computations.items()}
    return {
        "schema": SCHEMA,
        "module": plan.name,
        "target": plan.target,
        "fuse": plan.fuse,
        "allocations": [
            {"index": index, "size": a.size, "kind": str(a.kind)}
            for index, a in enumerate(plan.allocations)
        ],
        **_sequence(number(plan.body), hlo),
        "stats": {
            "nodes": stats.nodes,
            "edges": stats.edges,
            "width": stats.width,
            "critical_path": stats.critical_path,
            "arena_bytes": stats.arena_bytes,
            "lower_bound_bytes": stats.lower_bound_bytes,
            "nodes_in_all": stats.nodes_in_all,
            "edges_in_all": stats.edges_in_all,
        },
    }


def _sequence(numbered: Numbered, hlo: dict[str, str]) -> dict[str, Json]:
    return {
        "thunks": [_thunk(id, thunk, numbered, hlo) for id, thunk in numbered],
        "edges": [_edge(edge, numbered.first) for edge in numbered.sequence.edges],
    }


def _thunk(
    id: int, thunk: Thunk[Slice], numbered: Numbered, hlo: dict[str, str]
) -> dict[str, Json]:
    read, text = reads(thunk), None
    if isinstance(thunk, Kernel | Library | Collective):
        read, text = thunk.reads, hlo[thunk.computation]  # by parameter, not each once
    return {
        "id": id,
        "kind": kind_of(thunk),
        "name": thunk.name,
        "reads": [_bytes(s) for s in read],
        "writes": [_bytes(s) for s in writes(thunk)],
        "hlo": text,
        "computations": {label: _sequence(inner, hlo) for label, inner in numbered.nested(id)},
    }


def _bytes(held: Slice) -> dict[str, Json]:
    return {"allocation": held.allocation, "offset": held.offset, "size": held.size}


def _edge(edge: Edge, first: int) -> dict[str, Json]:
    held = edge.slice
    return {
        "src": first + edge.src,
        "dst": first + edge.dst,
        "hazard": str(edge.hazard),
        "allocation": held.allocation if held is not None else None,
        "offset": held.offset if held is not None else None,
        "size": held.size if held is not None else None,
    }
