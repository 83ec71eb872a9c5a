"""Reads the attributes in a module's first line."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hlo2graph.frontend.context import Context, nearest
from hlo2graph.frontend.cursor import Cursor
from hlo2graph.frontend.raw import check_frontend_attributes, original_array, shape_index
from hlo2graph.frontend.scan import Fault, closing, skip_blank
from hlo2graph.frontend.shapes import ShapeReader
from hlo2graph.frontend.token import Token
from hlo2graph.hlo import AnyShape
from hlo2graph.hlo.aliases import IoAlias


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
            attrs[name] = _read(name, text)
        except Fault as fault:
            raise fault.located(context.source, token.start + len(name) + 1) from None
    return attrs


def _read(name: str, text: str) -> str:
    """Return the text of an attribute, checked; aliases and numbers as they are usually written."""
    if name == "entry_computation_layout":
        entry_layout(text, ShapeReader())
        return text.strip()
    cursor = Cursor(text)
    if name == "input_output_alias":
        aliases = read_aliases(cursor)
        cursor.done()
        return f"{{ {', '.join(map(str, aliases))} }}" if aliases else "{}"
    found = _CHECKS[name](cursor)
    cursor.done()
    return str(found) if isinstance(found, int) else text.strip()


def read_aliases(cursor: Cursor) -> list[IoAlias]:
    """Read `{ {0}: (0, {}, may-alias) }`; of two for one result, the first holds, as in XLA."""
    found: dict[tuple[int, ...], IoAlias] = {}
    cursor.want("{", "'{' around the aliases")
    while not cursor.sees("}"):
        output = shape_index(cursor)
        cursor.want(":", "':' and (parameter, {index}, may-alias)")
        parameter, inner = _buffer(cursor)
        must = False
        if cursor.eats(","):
            must = cursor.sees("must-alias")
            if not must and not cursor.sees("may-alias"):
                cursor.fail("may-alias or must-alias")
            cursor.advance()
        cursor.want(")", "',' or ')'")
        found.setdefault(output, IoAlias(output, parameter, inner, must))
        if not cursor.eats(","):
            break
    cursor.want("}", "',' between two aliases, or '}'")
    return list(found.values())


def _buffer(cursor: Cursor) -> tuple[int, tuple[int, ...]]:
    """Read `(0, {1}` of a parameter's leaf."""
    cursor.want("(", "'(' and a parameter's number")
    start = cursor.start
    number = cursor.integer("a parameter's number")
    if number < 0:
        raise Fault("a parameter's number is 0 or more", start, cursor.start)
    cursor.want(",", "',' and an index in braces")
    return number, shape_index(cursor)


def _donors(cursor: Cursor) -> None:
    cursor.want("{", "donors such as { (0, {}), (1, {0}) }")
    while not cursor.sees("}"):
        _buffer(cursor)
        cursor.want(")")
        if not cursor.eats(","):
            break
    cursor.want("}", "',' or '}'")


def _bool(cursor: Cursor) -> None:
    if not cursor.eats("true") and not cursor.eats("false"):
        cursor.fail("true or false")


def _bools(cursor: Cursor) -> None:
    if cursor.sees("{"):
        cursor.items("{", "}", lambda: _bool(cursor), "{true, false, ...}")
    else:
        _bool(cursor)


def _recovery_table(cursor: Cursor) -> None:
    cursor.want("{", "a table in braces")
    while not cursor.eats("}"):
        original_array(cursor)
        cursor.want(":", "':' and {\"name\" {index}}")
        original_array(cursor)
        if cursor.eats(","):
            cursor.string("a module in quotes")


_CHECKS: dict[str, Callable[[Cursor], object]] = {
    "alias_passthrough_params": _bool,
    "allow_spmd_sharding_propagation_to_output": _bools,
    "allow_spmd_sharding_propagation_to_parameters": _bools,
    "buffer_donor": _donors,
    "frontend_attributes": check_frontend_attributes,
    "is_scheduled": _bool,
    "num_partitions": Cursor.integer,
    "origin_recovery_table": _recovery_table,
    "replica_count": Cursor.integer,
}
_ATTRS = (*_CHECKS, "entry_computation_layout", "input_output_alias")


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
    try:
        return shapes.parameters(text[start:end])
    except Fault as fault:
        raise Fault(fault.message, start + fault.start, start + fault.end) from None


def _shape(text: str, start: int, end: int, shapes: ShapeReader) -> AnyShape:
    try:
        return shapes(text[start:end])
    except Fault as fault:
        raise Fault(fault.message, start + fault.start, start + fault.end) from None
