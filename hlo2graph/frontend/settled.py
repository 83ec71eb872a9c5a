"""Shapes that what is written does not decide: those that XLA makes anew, and those left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hlo2graph.hlo import DTYPES, UNBOUNDED, AnyShape, Instruction, Kind, Shape, TupleShape

_Settle: TypeAlias = Callable[[AnyShape, Sequence[AnyShape]], AnyShape]
_TOKEN, _U32 = Shape(DTYPES["token"]), Shape(DTYPES["u32"])
_TYPED = frozenset({"convolution", "dot", "ragged-dot", "scaled-dot"})


def _token(_: AnyShape, __: Sequence[AnyShape]) -> AnyShape:
    return _TOKEN


def _first(_: AnyShape, operands: Sequence[AnyShape]) -> AnyShape:
    return operands[0]


def _sent(_: AnyShape, operands: Sequence[AnyShape]) -> AnyShape:
    return TupleShape((operands[0], _U32, _TOKEN))


def _received(written: AnyShape, _: Sequence[AnyShape]) -> AnyShape:
    assert isinstance(written, TupleShape)
    return TupleShape((written.parts[0], _U32, _TOKEN))


def _arrived(written: AnyShape, operands: Sequence[AnyShape]) -> AnyShape:
    begun = operands[0]
    parts = begun.parts if isinstance(begun, TupleShape) else ()
    return TupleShape((parts[0], _TOKEN)) if parts else written


def _fed(written: AnyShape, _: Sequence[AnyShape]) -> AnyShape:
    assert isinstance(written, TupleShape)
    return TupleShape((written.parts[0], _TOKEN))


SETTLED: dict[str, _Settle] = {
    "add-dependency": _first,
    "after-all": _token,
    "infeed": _fed,
    "outfeed": _token,
    "recv": _received,
    "recv-done": _arrived,
    "send": _sent,
    "send-done": _token,
}


def settled_shape(opcode: str, written: AnyShape, operands: Sequence[AnyShape]) -> AnyShape:
    """Return the shape that an instruction of `SETTLED` has, however it is written."""
    shape = SETTLED[opcode](written, operands)
    return written if shape.compatible(written) else shape


def assumed_shape(opcode: str, operands: Sequence[AnyShape]) -> Shape | None:
    """Return a shape of the element type that a product of these has, where none is written."""
    if opcode not in _TYPED:
        return None
    factors = operands[:: 2 if opcode == "scaled-dot" else 1][:2]
    dtypes = [factor.dtype for factor in factors if isinstance(factor, Shape)]
    widest = max(
        dtypes, key=lambda dtype: (not dtype.is_integer, dtype.bits), default=DTYPES["f32"]
    )
    return Shape(widest)


def implied_shape(instr: Instruction, operands: Sequence[AnyShape]) -> AnyShape | None:
    """Return the shape that XLA gives an instruction without one, before it is verified."""
    match instr.opcode:
        case "add-dependency" | "domain":
            return operands[0]
        case "after-all":
            return _TOKEN
        case "sort" if operands:
            return operands[0] if len(operands) == 1 else TupleShape(tuple(operands))
        case "broadcast" if isinstance(operands[0], Shape):
            return _broadcast(instr.attrs.get("dimensions", ()), operands[0])
        case _:
            return None


def _broadcast(sizes: object, shape: Shape) -> Shape | None:
    """Put dimensions of these sizes in front: so XLA takes the attribute, where no shape is."""
    assert isinstance(sizes, tuple)
    if shape.dtype.kind in (Kind.TOKEN, Kind.OPAQUE):
        return None
    if UNBOUNDED in shape.dims or any(size < 0 for size in sizes):
        return None
    dynamic = tuple(len(sizes) + dim for dim in shape.dynamic)
    return Shape(shape.dtype, (*sizes, *shape.dims), None, dynamic)
