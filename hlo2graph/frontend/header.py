"""Reads the attributes in a module's first line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hlo2graph.frontend.context import Context, nearest
from hlo2graph.frontend.raw import check_raw
from hlo2graph.frontend.scan import Fault, blank_comments, closing, skip_blank
from hlo2graph.frontend.shapes import ShapeReader
from hlo2graph.frontend.token import Token
from hlo2graph.frontend.values import integer
from hlo2graph.hlo import AnyShape
from hlo2graph.hlo.aliases import parse_aliases

_DONOR = r"\(\s*+\d++\s*+,\s*+\{\s*+(?>\d++\s*+,?\s*+)*+\}\s*+\)\s*+"
_DONORS = re.compile(rf"\{{\s*+(?>{_DONOR}(?>,\s*+(?=\()|(?=\}})))*+\}}", re.ASCII)
_ATTRS = (
    "alias_passthrough_params",
    "allow_spmd_sharding_propagation_to_output",
    "allow_spmd_sharding_propagation_to_parameters",
    "buffer_donor",
    "entry_computation_layout",
    "frontend_attributes",
    "input_output_alias",
    "is_scheduled",
    "num_partitions",
    "origin_recovery_table",
    "replica_count",
)


def read_header(attributes: list[Token], context: Context) -> Mapping[str, str]:
    """Return the header's attributes as text, checked as far as they are used."""
    attrs: dict[str, str] = {}
    for token in attributes:
        name, _, text = token.text.partition("=")
        if name not in _ATTRS:
            context.refuse(f"a module has no attribute {name}", token, *nearest(name, _ATTRS))
        if name in attrs:
            context.refuse(f"attribute {name} is given twice", token)
        try:
            _check(name, text)
        except Fault as fault:
            raise fault.located(context.source, token.start + len(name) + 1) from None
        attrs[name] = text.strip()
    return attrs


def _check(name: str, text: str) -> None:
    value = text.strip()
    if name in ("is_scheduled", "alias_passthrough_params") and value not in ("true", "false"):
        raise Fault("expected true or false", 0, len(text))
    if name in ("num_partitions", "replica_count"):
        integer(value)
    if name == "frontend_attributes":
        check_raw(name, blank_comments(value))
    if name == "buffer_donor" and not _DONORS.fullmatch(blank_comments(value)):
        raise Fault("expected donors such as { (0, {}), (1, {0}) }", 0, len(text))
    if name == "entry_computation_layout":
        entry_layout(text, ShapeReader())
    if name == "input_output_alias":
        try:
            parse_aliases(text)
        except ValueError as error:
            message, at = error.args
            raise Fault(message, at, at + 1) from None


def entry_layout(text: str, shapes: ShapeReader) -> tuple[tuple[AnyShape, ...], AnyShape]:
    """Return the parameters' and the result's shapes of `{(f32[2]{0}, s32[])->f32[2]{0}}`.

    Raises:
        Fault: the text has another form; offsets are those in `text`.
    """
    start = skip_blank(text, 0, len(text))
    behind = closing(text, start, len(text)) if text.startswith("{", start) else 0
    at = skip_blank(text, start + 1, len(text))
    if behind < 2 or not text.startswith("(", at):
        raise Fault("expected {(parameter shapes)->result shape}", 0, len(text))
    end = closing(text, at, len(text))
    arrow = skip_blank(text, end, len(text))
    if not text.startswith("->", arrow):
        raise Fault("expected '->' behind the parameters' shapes", end, end + 1)
    return _parts(text, at, end, shapes), _shape(text, arrow + 2, behind - 1, shapes)


def _parts(text: str, start: int, end: int, shapes: ShapeReader) -> tuple[AnyShape, ...]:
    tuple_shape = _shape(text, start, end, shapes)
    parts: tuple[AnyShape, ...] = tuple_shape.parts  # type: ignore[union-attr]
    return parts


def _shape(text: str, start: int, end: int, shapes: ShapeReader) -> AnyShape:
    try:
        return shapes(text[start:end])
    except Fault as fault:
        raise Fault(fault.message, start + fault.start, start + fault.end) from None
