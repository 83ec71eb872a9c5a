"""How sizes go through tuples, calls, loops and branches: they are passed along beside arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from hlo2graph.hlo import AnyShape, Attribute, Instruction, Shape, TupleShape
from hlo2graph.ops.custom_target import target_of
from hlo2graph.ops.expect import integer
from hlo2graph.passes.sizes.body import SIZE, Body
from hlo2graph.passes.sizes.value import (
    Pattern,
    Place,
    UnfollowedError,
    Value,
    joined,
    whole,
)

_MARKS = frozenset(
    {"MoveToDevice", "MoveToHost", "SPMDFullToShardShape", "SPMDShardToFullShape"}
    | {"SetBound", "Sharding", "annotate_device_placement"}
)

Follow: TypeAlias = "Callable[[str, tuple[Pattern, ...], Pattern | None], tuple[str, Pattern]]"
"""Rewrite a computation for arguments with sizes in such places and a result with sizes at least
in the places given, or wherever it has any; return its name and where the result has sizes."""


def bundled(shape: AnyShape, sizes: int) -> TupleShape:
    """Return the shape of a tuple of what `shape` has and so many sizes."""
    parts = shape.parts if isinstance(shape, TupleShape) else (shape,)
    return TupleShape((*parts, *[SIZE] * sizes))


def bundle(body: Body, value: Value, pattern: Pattern) -> str:
    """Return the value with its sizes behind its parts; itself where there are none."""
    if not pattern:
        return body.operand(value)
    sizes = [size_at(body, value, place) for place in pattern]
    return body.add("tuple", bundled(value.shape, len(sizes)), [*body.parts(value), *sizes])


def size_at(body: Body, value: Value, place: Place) -> str:
    """Return the size of a dimension of a leaf, its bound where that is what it is."""
    leaf, dim = place
    known = value.sizes.get(place)
    return body.number(list(value.shape.leaves())[leaf].dims[dim]) if known is None else known


def unbundle(body: Body, instr: Instruction, bundled_name: str, pattern: Pattern) -> Value:
    """Return what a bundle holds: of a tuple the bundle itself, of an array its part."""
    shape = whole(instr.shape)
    start = len(shape.parts) if isinstance(shape, TupleShape) else 1
    sizes = {
        place: body.add("get-tuple-element", SIZE, [bundled_name], index=start + at)
        for at, place in enumerate(pattern)
    }
    if isinstance(shape, TupleShape):
        return Value(bundled_name, shape, sizes, extended=bool(pattern))
    if not pattern:
        return Value(bundled_name, shape)
    kept = {k: instr.attrs[k] for k in ("metadata", "sharding") if k in instr.attrs}
    return body.named(
        instr, "get-tuple-element", shape, [bundled_name], sizes, {**kept, "index": 0}
    )


def make_tuple(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Put sizes together as the parts are."""
    return body.keep(instr, body.operands(values), joined(values))


def take_element(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Take a part with its sizes."""
    return body.keep(instr, [values[0].name], values[0].part(integer(instr, "index")))


def passed(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Follow what gives its first operand."""
    return body.keep(instr, body.operands(values), values[0].sizes)


def each(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Follow what gives something of the same sizes for each of its operands."""
    return body.keep(instr, body.operands(values), joined(values))


def custom_call(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Follow the two calls by which XLA makes whole arrays bounded, and back."""
    target = target_of(instr)
    if target == "SliceToDynamic" and _fits(values[1:], values[:1], instr.shape):
        assert isinstance(instr.shape, Shape)
        sizes = {(0, d): values[1 + d].name for d in instr.shape.dynamic}
        return body.stands(instr, values[0].name, sizes)
    if target == "PadToStatic" and len(values) == 1 and isinstance(values[0].shape, Shape):
        value, given = values[0], whole(instr.shape)
        parts = (value.shape, *[SIZE] * value.array.rank)
        if given.compatible(TupleShape(parts)):
            found = [body.size_along(value, d) for d in range(value.array.rank)]
            return body.named(instr, "tuple", given, [value.name, *found], {}, {})
    if target in _MARKS and len(values) == 1 and whole(instr.shape).compatible(values[0].shape):
        return body.keep(instr, [values[0].name], values[0].sizes)
    raise UnfollowedError(instr.name)


def _fits(sizes: Sequence[Value], arrays: Sequence[Value], result: AnyShape) -> bool:
    """Tell whether there is a size for each dimension of the one array that a call bounds."""
    if len(arrays) != 1 or not arrays[0].shape.compatible(whole(result)):
        return False
    each = all(size.shape.compatible(SIZE) for size in sizes)
    return each and isinstance(result, Shape) and len(sizes) == result.rank


def call(body: Body, instr: Instruction, values: Sequence[Value], follow: Follow) -> Value:
    """Call with the sizes behind the arguments; a fusion becomes a call."""
    attr = "to_apply" if instr.opcode == "call" else "calls"
    name, pattern = follow(str(instr.attrs[attr]), tuple(v.pattern for v in values), None)
    sizes = [size for v in values for _, size in sorted(v.sizes.items())]
    attrs = {**_plain(instr), "to_apply": name}
    return _result(body, instr, "call", [*body.operands(values), *sizes], attrs, pattern)


def loop(body: Body, instr: Instruction, values: Sequence[Value], follow: Follow) -> Value:
    """Carry sizes in the state, also those that a round adds."""
    (value,) = values
    inner, pattern = str(instr.attrs["body"]), value.pattern
    while True:
        found = follow(inner, (pattern,), None)[1]
        grown = tuple(sorted({*pattern, *found}))
        if grown == pattern:
            break
        pattern = grown
    attrs: dict[str, Attribute] = {
        **instr.attrs,
        "condition": follow(str(instr.attrs["condition"]), (pattern,), ())[0],
        "body": follow(inner, (pattern,), pattern)[0],
    }
    return _result(body, instr, "while", [bundle(body, value, pattern)], attrs, pattern)


def branch(body: Body, instr: Instruction, values: Sequence[Value], follow: Follow) -> Value:
    """Give branches their arguments' sizes, and all of them the sizes that any of them has."""
    selector, *given = values
    names = _branches(instr)
    patterns = [v.pattern for v in given]
    found = [follow(n, (p,), None)[1] for n, p in zip(names, patterns, strict=True)]
    pattern = tuple(sorted({place for places in found for place in places}))
    made = [follow(n, (p,), pattern)[0] for n, p in zip(names, patterns, strict=True)]
    attrs = {**instr.attrs, **_named_branches(instr, made)}
    operands = [bundle(body, v, p) for v, p in zip(given, patterns, strict=True)]
    return _result(body, instr, "conditional", [selector.name, *operands], attrs, pattern)


def _result(
    body: Body,
    instr: Instruction,
    opcode: str,
    operands: Sequence[str],
    attrs: Mapping[str, Attribute],
    pattern: Pattern,
) -> Value:
    """Write what calls, and take its result apart."""
    if not pattern:
        shape = whole(instr.shape)
        return body.named(instr, opcode, shape, operands, {}, attrs)
    shape = bundled(whole(instr.shape), len(pattern))
    if isinstance(instr.shape, TupleShape):
        made = body.named(instr, opcode, shape, operands, {}, attrs)
        return unbundle(body, instr, made.name, pattern)
    return unbundle(body, instr, body.add(opcode, shape, operands, **attrs), pattern)


def _plain(instr: Instruction) -> dict[str, Attribute]:
    """Return the attributes that any instruction may have."""
    kept = ("metadata", "sharding", "frontend_attributes", "control-predecessors")
    return {key: instr.attrs[key] for key in kept if key in instr.attrs}


def _branches(instr: Instruction) -> list[str]:
    held = instr.attrs.get("branch_computations")
    if isinstance(held, tuple):
        return [str(name) for name in held]
    return [str(instr.attrs["true_computation"]), str(instr.attrs["false_computation"])]


def _named_branches(instr: Instruction, names: Sequence[str]) -> dict[str, Attribute]:
    if "branch_computations" in instr.attrs:
        return {"branch_computations": tuple(names)}
    return {"true_computation": names[0], "false_computation": names[1]}
