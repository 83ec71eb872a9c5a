"""XLA's `*thunk_sequence*.txt`: which thunks stand in which command buffer.

A line is an indentation, an id, `:` and a kind; nested thunks are further in. Labels (`body:`,
`branch_0:`) stand two columns further in than the thunk they belong to; `condition:`, of which XLA
loses the indentation, follows its thunk at once. Both the bracketed spelling and the older one with
a tab behind the kind are read; what follows the kind is not needed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hlo2graph.errors import ParseError, Source, Span
from hlo2graph.frontend.xla_dump.model import Printed

_THUNK = re.compile(r"(?P<indent> *)\d+: (?P<kind>k\w+)")
_LABEL = re.compile(r"(?P<indent> *)(?P<label>condition|body|branch_\d+):\s*")


@dataclass(slots=True)
class _Open:
    """A thunk whose nested lines may still come."""

    indent: int
    kind: str
    label: str = ""
    inside: dict[str, list[_Open]] = field(default_factory=dict)

    def close(self) -> Printed:
        """Return it with all that was found inside."""
        made = ((name, tuple(o.close() for o in lines)) for name, lines in self.inside.items())
        return Printed(self.kind, tuple(made))


def parse_sequence(text: str, filename: str = "<string>") -> tuple[Printed, ...]:
    """Return the lines of a thunk sequence, nested as they stand. Raises ParseError."""
    source, at = Source(filename, text), 0
    top = _Open(-1, "")
    stack = [top]
    for line in text.split("\n"):
        span = Span(source, at, at + max(1, len(line)))
        at += len(line) + 1
        if label := _LABEL.fullmatch(line):
            _enter(stack, label["label"], len(label["indent"]), span)
        elif thunk := _THUNK.match(line):
            made = _Open(len(thunk["indent"]), thunk["kind"])
            while stack[-1].indent >= made.indent:
                stack.pop()
            holder = stack[-1]
            holder.inside.setdefault(holder.label, []).append(made)
            stack.append(made)
        elif line.strip():
            raise ParseError("expected a thunk, as in `001: kCopy ...`, or a label", span)
    return top.close().under("")


def _enter(stack: list[_Open], label: str, indent: int, span: Span) -> None:
    """Let what follows be the sequence `label` of the thunk that the label belongs to."""
    while label != "condition" and stack[-1].indent >= indent:
        stack.pop()
    holder = stack[-1]
    if holder.kind not in ("kWhile", "kConditional"):
        raise ParseError("this label belongs to no loop or conditional", span)
    holder.label = label
    holder.inside.setdefault(label, [])
