"""How sizes go through sort and top-k: padding goes behind everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Shape, TupleShape
from hlo2graph.hlo.dtype import PRED
from hlo2graph.ops.expect import integers
from hlo2graph.passes.sizes.body import Body
from hlo2graph.passes.sizes.folding import highest, lowest, merged
from hlo2graph.passes.sizes.value import Value, on_each_leaf

_FLAG = Shape(PRED)


def sort(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Sort with a flag beside the keys that tells which elements are padding."""
    sizes, (dim,) = merged(values), integers(instr, "dimensions")
    found, names = on_each_leaf(instr.shape, sizes), [v.name for v in values]
    if dim not in sizes:
        return body.keep(instr, names, found)
    shape = values[0].array
    flags = replace(shape, dtype=PRED)
    outside = body.add("not", flags, [body.inside(shape, {dim: sizes[dim]})])
    order = _padding_last(body, body.computations[str(instr.attrs["to_apply"])])
    attrs = {**instr.attrs, "to_apply": order}
    whole = TupleShape((*(v.array for v in values), flags))
    if isinstance(instr.shape, TupleShape):
        made = body.named(instr, "sort", whole, [*names, outside], found, attrs)
        return replace(made, shape=TupleShape(whole.parts[:-1]), extended=True)
    kept = {k: held for k, held in attrs.items() if k in ("dimensions", "is_stable", "to_apply")}
    both = body.add("sort", whole, [*names, outside], **kept)
    return body.stands(instr, body.add("get-tuple-element", shape, [both], index=0), found)


def _padding_last(body: Body, order: Computation) -> str:
    """Return a comparator that puts padding last, as it was, and asks `order` about the rest."""
    count = len(order.parameters)
    taken = {i.name for i in order.instructions}
    names: list[str] = []
    for stem in ("left_outside", "right_outside", "before", "first"):
        name = stem
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    left, right, before, first = names
    lines = (
        *order.instructions,
        Instruction(left, "parameter", _FLAG, payload=count),
        Instruction(right, "parameter", _FLAG, payload=count + 1),
        Instruction(before, "or", _FLAG, (right, order.root)),
        Instruction(first, "compare", _FLAG, (left, before), {"direction": "LT"}),
    )
    return body.made(replace(order, instructions=lines, root=first))


def topk(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Let padding be what is chosen last."""
    (value,) = values
    last = value.array.rank - 1
    shape, sizes = value.array, value.along
    smallest = instr.attrs.get("largest") is False
    fill = highest(shape.dtype) if smallest else lowest(shape.dtype)
    seen = {d: size for d, size in sizes.items() if d == last}
    name = body.masked(value.name, shape, seen, body.scalar(shape, fill))
    left = {d: size for d, size in sizes.items() if d != last}
    return body.keep(instr, [name], on_each_leaf(instr.shape, left))
