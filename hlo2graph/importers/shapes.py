"""The shapes that arguments are to have: `f32[8,4],s32[],(f32[2],pred[])`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo2graph.errors import ParseError, Source, Span
from hlo2graph.frontend.scan import Fault
from hlo2graph.frontend.shapes import ShapeReader
from hlo2graph.hlo import UNBOUNDED, AnyShape, Kind, Shape, TupleShape

NO_ARRAYS = (Kind.TOKEN, Kind.OPAQUE)


def read_shapes(text: str) -> tuple[AnyShape, ...]:
    """Return the shapes in a list as HLO writes them, without layouts.

    Raises:
        ParseError: it is no such list, or a size is open.
    """
    whole = f"({text})"
    try:
        found = ShapeReader()(whole)
    except Fault as fault:
        raise _as_typed(fault, text) from None
    assert isinstance(found, TupleShape)
    for leaf in found.leaves():
        if leaf.dynamic or UNBOUNDED in leaf.dims or leaf.dtype.kind in NO_ARRAYS:
            raise ParseError(f"--shapes: {leaf} is no array of one size, as f32[8,4] is")
    return found.parts


def _as_typed(fault: Fault, text: str) -> ParseError:
    """Return the error in the list as it was given, which had no parentheses around it."""
    start, end = (min(max(at - 1, 0), len(text)) for at in (fault.start, fault.end))
    return ParseError(fault.message, Span(Source("--shapes", text), start, end), fault.notes)


def leaves_of(shapes: Sequence[AnyShape]) -> Iterator[Shape]:
    """Yield the arrays among shapes, those of tuples in order."""
    for shape in shapes:
        yield from shape.leaves()
