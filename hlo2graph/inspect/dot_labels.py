"""What stands on a node: name, kind, shapes, bytes, source line; cut to length and quoted."""

from __future__ import annotations

import re
from typing import assert_never

from hlo2graph.hlo import AnyShape, Computation
from hlo2graph.hlo.metadata import op_name, source_line
from hlo2graph.inspect.figures import bytes_text
from hlo2graph.program.plan import Plan
from hlo2graph.program.text.numbering import Numbered
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Slice,
    Thunk,
    While,
)
from hlo2graph.program.uses import reads, writes

LONGEST_NAME = 60
LONGEST_TOOLTIP = 200
MOST_SLICES = 3  # of one thunk on its label
MOST_NESTED = 4  # sequences told of on the label of a closed conditional

_NO_WORK = frozenset({"bitcast", "constant", "get-tuple-element", "parameter", "tuple"})
_ENTITY = re.compile(r"&(?=#?\w+;)")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x85\u2028\u2029\ud800-\udfff]")


def quoted(text: str) -> str:
    """Return `text` as a DOT string that shows just these characters, line breaks too."""
    shown = plain(_ENTITY.sub("&amp;", text))
    escaped = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def plain(text: str) -> str:
    """Return `text` with spaces in place of control characters, but for line breaks."""
    return _CONTROL.sub(" ", text)


def shortened(text: str, longest: int = LONGEST_NAME) -> str:
    """Return `text` with its middle left out if it is longer than `longest`."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def counted(count: int, noun: str) -> str:
    """Return `1 thunk`, `2 thunks`, `1,000 thunks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class Labels:
    """Writes the labels of one plan's thunks."""

    def __init__(self, plan: Plan, tables: str) -> None:
        self._plan = plan
        self._tables = tables
        self._runs: dict[str, tuple[str, str]] = {}  # by computation: what it does, its result

    def node(
        self, thunk: Thunk[Slice], hidden: tuple[tuple[str, Numbered], ...], opened: bool
    ) -> str:
        """Return a node's label; `hidden` are the nested sequences that are not drawn."""
        lines = [shortened(thunk.name), *self._what(thunk)]
        if not opened:
            lines.append(_buffers(thunk))
        lines += [
            f"{label}: {counted(len(inner.sequence.thunks), 'thunk')}"
            for label, inner in hidden[:MOST_NESTED]
        ]
        source = source_line(self._tables, thunk.metadata)
        if source:
            lines.append(shortened(source))
        return "\n".join(lines)

    def tooltip(self, thunk: Thunk[Slice]) -> str:
        """Return what shows when the mouse is over a node: where the thunk comes from."""
        return shortened(op_name(thunk.metadata) or thunk.name, LONGEST_TOOLTIP)

    def _what(self, thunk: Thunk[Slice]) -> list[str]:
        match thunk:
            case Kernel() | Library() | Collective():
                does, result = self._computation(thunk.computation)
                return [f"{kind_of(thunk)}: {does}", result]
            case Copy():
                return [f"copy {bytes_text(thunk.target.size)}"]
            case Fill():
                return [f"fill {bytes_text(thunk.target.size)} with {thunk.pattern.hex(' ')}"]
            case While():
                times = "" if thunk.trip_count is None else f", {thunk.trip_count} times"
                return [f"while{times}"]
            case Conditional():
                return [f"conditional, {len(thunk.branches)} branches"]
            case _:
                assert_never(thunk)

    def _computation(self, name: str) -> tuple[str, str]:
        found = self._runs.get(name)
        if found is None:
            computation = self._plan.computations[name]
            found = self._runs[name] = (
                _does(computation),
                shortened(shape_text(computation.result.shape)),
            )
        return found


def _does(computation: Computation) -> str:
    """Return a lone instruction's opcode, or what a fusion ends with and how large it is."""
    work = [i.opcode for i in computation.instructions if i.opcode not in _NO_WORK]
    last = computation.result.opcode
    if last in _NO_WORK and work:
        last = work[-1]
    return last if len(work) <= 1 else f"{last} and {len(work) - 1} more"


def shape_text(shape: AnyShape) -> str:
    """Return a shape with those layouts alone that are not the usual ones."""
    usual = all(leaf.is_row_major for leaf in shape.leaves())
    return shape.without_layout_text() if usual else str(shape)


def _buffers(thunk: Thunk[Slice]) -> str:
    return f"{_slices(reads(thunk))} -> {_slices(writes(thunk))}".strip()


def _slices(slices: tuple[Slice, ...]) -> str:
    shown = " ".join(map(str, slices[:MOST_SLICES]))
    more = len(slices) - MOST_SLICES
    return f"{shown} +{more}" if more > 0 else shown
