"""How sizes go through operations that work element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo2graph.hlo import Instruction, Shape, SliceDim
from hlo2graph.hlo.dtype import PRED, S32
from hlo2graph.passes.sizes.body import Body
from hlo2graph.passes.sizes.value import Value, on_each_leaf


def elementwise(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Work on whole arrays.

    Sizes that need not be equal are made so, as in XLA: what has one element is repeated, and of
    other sizes the smaller one counts.
    """
    rank = max(v.array.rank for v in values)
    names = {at: v.name for at, v in enumerate(values)}
    sizes: dict[int, str] = {}
    for dim in range(rank):
        sized = {at: v.along[dim] for at, v in enumerate(values) if dim in v.along}
        if not sized:
            continue
        total, *others = dict.fromkeys(sized.values())
        for other in others:
            total = _common(body, total, other)
        sizes[dim] = total
        if others:
            for at, size in sized.items():
                names[at] = _repeated(body, names[at], values[at].array, dim, size)
    return body.keep(instr, list(names.values()), on_each_leaf(instr.shape, sizes))


def _common(body: Body, left: str, right: str) -> str:
    """Return the smaller size, or the other one of 1."""
    smaller = body.count("minimum", left, right)
    scalar = Shape(S32)
    either = body.add("select", scalar, [body.holds(left, "EQ", 1), right, smaller])
    return body.add("select", scalar, [body.holds(right, "EQ", 1), left, either])


def _repeated(body: Body, name: str, shape: Shape, dim: int, size: str) -> str:
    """Return the array, or where it has one element along `dim`, that one everywhere."""
    if not shape.dims[dim]:
        return name
    cut = tuple(SliceDim(0, 1 if d == dim else n) for d, n in enumerate(shape.dims))
    dims = tuple(1 if d == dim else n for d, n in enumerate(shape.dims))
    left = tuple(d for d in range(shape.rank) if d != dim)
    one = body.add("slice", Shape(shape.dtype, dims), [name], slice=cut)
    row = Shape(shape.dtype, tuple(shape.dims[d] for d in left))
    flat = body.add("reshape", row, [one])
    everywhere = body.add("broadcast", shape, [flat], dimensions=left)
    alone = body.spread(body.holds(size, "EQ", 1), replace(shape, dtype=PRED))
    return body.add("select", shape, [alone, everywhere, name])
