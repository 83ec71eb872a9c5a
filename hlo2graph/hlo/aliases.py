"""Typed reading of a module header's `input_output_alias`.

    { {1}: (0, {}, may-alias), {0}: (2, {1}, must-alias) }

says that result leaf {1} may take over the buffer of parameter 0, and that result leaf {0} has to
take over leaf {1} of parameter 2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hlo2graph.errors import ParseError
from hlo2graph.hlo.module import Module

MUCH_GIVEN_UP = 4 << 20
"""Bytes that a module gives up in all, above which results wait for readers of what they overwrite.

Waiting costs some microseconds; so much more memory is the dearer of the two.
"""

_NUMBER = r"\d{1,9}"
_INDEX = rf"\{{((?>\s*+{_NUMBER}\s*+(?>,|(?=\}}))){{0,64}}+\s*+)\}}"
_BLANK = re.compile(r"\s*+")
_ENTRY = re.compile(
    rf"\s*{_INDEX}\s*:\s*\(\s*({_NUMBER})\s*(?:,\s*{_INDEX}\s*)?"
    r"(?:,\s*(may-alias|must-alias)\s*)?\)\s*"
)


@dataclass(frozen=True, slots=True)
class IoAlias:
    """Result leaf `output_index` shares the buffer of a leaf of a parameter."""

    output_index: tuple[int, ...]
    parameter: int
    parameter_index: tuple[int, ...] = ()
    must: bool = False

    def __str__(self) -> str:
        kind = "must-alias" if self.must else "may-alias"
        source = f"({self.parameter}, {_braced(self.parameter_index)}, {kind})"
        return f"{_braced(self.output_index)}: {source}"


def parse_aliases(text: str) -> tuple[IoAlias, ...]:
    """Read the text of `input_output_alias`, braces included.

    Raises:
        ValueError: the text is malformed; the message says what was expected, the second argument
            is the offset in `text`.
    """
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}") and len(body) > 1):
        raise ValueError("expected '{' around the aliases", 0)
    entries: list[IoAlias] = []
    at = text.index("{") + 1
    end = text.rindex("}")
    while not _BLANK.fullmatch(text, at, end):
        found = _ENTRY.match(text, at, end)
        if not found:
            raise ValueError("expected '{output index}: (parameter, {index}, may-alias)'", at)
        output, parameter, inner, kind = found.groups()
        entries.append(
            IoAlias(_index(output), int(parameter), _index(inner or ""), kind == "must-alias")
        )
        at = found.end()
        if at < end:
            if text[at] != ",":
                raise ValueError("expected ',' between two aliases", at)
            at += 1
    return tuple(entries)


def io_aliases(module: Module) -> tuple[IoAlias, ...]:
    """Return the module's input-output aliases in written order; none gives ().

    Raises:
        ParseError: the header's text is malformed (a parsed module's never is).
    """
    text = module.attrs.get("input_output_alias")
    if text is None:
        return ()
    try:
        return parse_aliases(text)
    except ValueError as error:
        raise ParseError(f"input_output_alias: {error.args[0]}", module.span) from error


def _index(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def _braced(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"
