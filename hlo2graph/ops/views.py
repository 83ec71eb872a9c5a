"""Which instructions are views: their result is their operand's bytes, read with another shape."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.hlo import AnyShape, Instruction, Shape


def is_view(instr: Instruction, operand: Shape) -> bool:
    """Tell whether `instr`'s result has the bytes of its only operand, in the same order.

    `operand` is the shape, layout included, in which the operand's bytes are stored.
    """
    result = instr.shape
    if not isinstance(result, Shape) or result.size != operand.size or operand.dynamic:
        return False
    match instr.opcode:
        case "bitcast":
            keeps = True
        case "reshape":
            keeps = _strides(result) == _strides(operand)
        case "transpose":
            keeps = _keeps_order(result, operand, _ints(instr))
        case "broadcast":
            source = {r: o for o, r in enumerate(_ints(instr))}
            keeps = _keeps_order(result, operand, [source.get(r, -1) for r in range(result.rank)])
        case "bitcast-convert":
            keeps = result.dims == operand.dims and same_order(result, operand)
        case _:
            keeps = False
    return keeps


def same_order(a: Shape, b: Shape) -> bool:
    """Tell whether two layouts of the same dimensions put each element at the same place."""
    return a.minor_to_major == b.minor_to_major or _order(a) == _order(b)


def same_places(a: AnyShape, b: AnyShape) -> bool:
    """Tell whether arrays, or tuples of arrays, of the two shapes are the same bytes."""
    if isinstance(a, Shape) and isinstance(b, Shape):
        return a.compatible(b) and same_order(a, b)
    return a.compatible(b) and all(map(same_order, a.leaves(), b.leaves()))


def _order(shape: Shape) -> list[int]:
    """Return the dimensions of more than one element, most minor first."""
    return [d for d in shape.minor_to_major if shape.dims[d] != 1]


def _keeps_order(result: Shape, operand: Shape, source: Sequence[int]) -> bool:
    """Compare physical orders where dimension r of the result is dimension source[r] before."""
    return result.elements == operand.elements and [source[d] for d in _order(result)] == _order(
        operand
    )


def _strides(shape: Shape) -> list[tuple[int, int]]:
    """Return how memory order walks through row-major element numbers, as (stride, count)s.

    Neighbours that continue each other are merged, so that two shapes of the same number of
    elements store them in the same order exactly if their lists are equal.
    """
    if shape.elements == 0:
        return []
    numbering = [1] * shape.rank
    for d in range(shape.rank - 2, -1, -1):
        numbering[d] = numbering[d + 1] * shape.dims[d + 1]
    merged: list[tuple[int, int]] = []
    for d in _order(shape):
        if merged and numbering[d] == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0], merged[-1][1] * shape.dims[d])
        else:
            merged.append((numbering[d], shape.dims[d]))
    return merged


def _ints(instr: Instruction) -> tuple[int, ...]:
    """Return `dimensions`, absent where the operand is a scalar."""
    held = instr.attrs.get("dimensions", ())
    return tuple(d for d in held if isinstance(d, int)) if isinstance(held, tuple) else ()
