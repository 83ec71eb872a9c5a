"""HLO text to Module, and the parts of a text that holds several."""

from __future__ import annotations

import re

from hlo2graph.errors import Source
from hlo2graph.frontend.build import parse_module
from hlo2graph.hlo import Module

_SEPARATOR = re.compile(r"^//[ \t]*-----[^\n]*$", re.MULTILINE)


def parse(text: str, filename: str = "<string>") -> Module:
    """Return the one module that `text` holds, its syntax and names checked.

    Raises:
        ParseError: it holds none, several, or something else than HLO.
    """
    source = Source(filename, text)
    return parse_module(source, 0, len(text))
