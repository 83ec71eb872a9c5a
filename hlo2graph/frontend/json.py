"""Steps over a JSON dictionary in HLO text: braces and strings, all else as it may be."""

from __future__ import annotations

import re

from hlo2graph.frontend.cursor import Cursor
from hlo2graph.frontend.scan import Fault

_PART = re.compile(r'[^{}"]++|(?P<string>"(?>[^"\\]++|\\[^\n])*+")|(?P<mark>.)', re.DOTALL)


def skip_json(cursor: Cursor, expected: str) -> None:
    """Step over the dictionary at hand."""
    if not cursor.sees("{"):
        cursor.fail(expected)
    cursor.jump(json_end(cursor.source, cursor.start, cursor.limit))


def json_end(text: str, at: int, end: int) -> int:
    """Return the offset behind the dictionary that begins at `at`; raises Fault.

    Only double quotes make a string, and nothing makes a comment.
    """
    depth = 0
    for part in _PART.finditer(text, at, end):
        mark = part["mark"]
        if mark == '"':
            raise Fault("this string is never closed", part.start(), part.end())
        if mark:
            depth += 1 if mark == "{" else -1
            if not depth:
                return part.end()
    raise Fault("this '{' is never closed", at, at + 1)
