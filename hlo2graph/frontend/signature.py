"""Reads `(x: f32[4], y: (s32[], pred[])) -> f32[4]`, which may stand behind a computation's name.

As in XLA, the result's shape has to be the root's, and the parameters are for the reader only.
"""

from __future__ import annotations

import re

from hlo2graph.frontend.lexer import ID
from hlo2graph.frontend.names import RESERVED
from hlo2graph.frontend.scan import Fault, blank_comments, skip_blank
from hlo2graph.frontend.shapes import ShapeReader
from hlo2graph.hlo import AnyShape

_NAME = re.compile(rf"%{ID}|{ID}:?+", re.ASCII)
_SHAPE = re.compile(r"[A-Za-z(]")


def result_shape(text: str, shapes: ShapeReader) -> tuple[AnyShape, int]:
    """Return the result's shape and where it begins in a signature.

    Raises:
        Fault: the text is no signature; offsets are those in it.
    """
    text = blank_comments(text)
    at = _skip(text, 1)
    while not text.startswith(")", at):
        name = _NAME.match(text, at)
        behind = _skip(text, name.end()) if name else at
        if not name or name.group() in RESERVED or not _SHAPE.match(text, behind):
            raise Fault("expected a parameter 'name: shape'", at, max(at + 1, behind))
        _, at = shapes.read_at(text, behind)
        at = _skip(text, at)
        if text.startswith(",", at):
            comma, at = at, _skip(text, at + 1)
            if text.startswith(")", at):
                raise Fault("expected a parameter behind this ','", comma, comma + 1)
        elif not text.startswith(")", at):
            raise Fault("expected ',' or ')' behind the parameter", at, at + 1)
    start = _skip(text, text.index("->", at) + 2)
    shape, _ = shapes.read_at(text, start)
    return shape, start


def _skip(text: str, at: int) -> int:
    return skip_blank(text, at, len(text))
