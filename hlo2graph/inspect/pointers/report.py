"""What the lab found, in words and for programs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hlo2graph.inspect.figures import bytes_text, columns, plural, time_text
from hlo2graph.inspect.pointers.lab import AUTO, PATTERNS, Lab, Row

SCHEMA = {"name": "hlo2graph.pointers", "version": 3}
HEADS = (
    *("enqueue", "latency", "mean", "over best", "apart", "updates", "ready", "copied", "graphs"),
    "learning",
)


def lab_text(lab: Lab) -> str:
    """Return the tables, one a pattern, and how `auto` compares with the best."""
    lines = [
        f"{lab.name}: {plural(lab.nodes, 'node')}, {plural(lab.ports, 'array')} that may move, "
        f"{bytes_text(lab.held)} of buffers; {lab.moves} calls a row that count, of each of "
        f"{plural(lab.executables, 'executable')}; {lab.sets} sets"
    ]
    for pattern in PATTERNS:
        table = [[pattern, *HEADS]]
        table += [_cells(row) for row in lab.rows if row.pattern == pattern]
        lines += ["", *columns(table, left=1)]
    said = [row for row in lab.rows if row.strategy == AUTO and row.pattern == PATTERNS[-1]]
    lines += ["", *(f"auto, all in all: {row.says}" for row in said)]
    if said:
        lines += [_verdict(lab, row) for row in lab.rows if row.strategy == AUTO]
    notes = {note: row.strategy for row in lab.rows for note in row.notes}
    lines += [f"{strategy}: {note}" for note, strategy in notes.items()]
    return "\n".join(lines).rstrip()


def _verdict(lab: Lab, row: Row) -> str:
    took = f"learning took {row.learning} calls and {time_text(row.learned)} more than these later"
    return f"auto, {row.pattern}: {lab.verdict(row.pattern)}, {_ratio(row)}; {took}"


def _ratio(row: Row) -> str:
    return f"{row.ratio:.2f} ({row.interval[0]:.2f} to {row.interval[1]:.2f})"


def _cells(row: Row) -> list[str]:
    return [
        f"  {row.strategy}",
        time_text(row.enqueue),
        time_text(row.latency),
        time_text(row.mean),
        _ratio(row),
        f"{row.apart:.2f}",
        f"{row.updates:.1f}",
        f"{row.hits:.0%}",
        bytes_text(round(row.copied)),
        str(row.graphs),
        time_text(row.learned),
    ]


def lab_json(lab: Lab) -> dict[str, Any]:
    """Return the tables as JSON, in seconds and bytes: schema `hlo2graph.pointers`, version 3.

    `verdicts` says by pattern how `auto` does beside the best.
    """
    rows = [{f.name: getattr(row, f.name) for f in fields(row)} for row in lab.rows]
    head = {f.name: getattr(lab, f.name) for f in fields(lab) if f.name != "rows"}
    verdicts = {pattern: lab.verdict(pattern) for pattern in PATTERNS}
    return {"schema": SCHEMA, **head, "verdicts": verdicts, "rows": rows}
