"""What rewriting rules ask of a draft and make in it: values that are known, and instructions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from hlo2graph.hlo import Attribute, Instruction, Literal, Shape, SliceDim
from hlo2graph.ops.spec import Array
from hlo2graph.passes.draft import Draft

Found: TypeAlias = str | Instruction | None
"""The name of an equal value, a cheaper instruction of the same name, or nothing."""

Rule: TypeAlias = Callable[[Draft, Instruction], Found]

_SPREAD = frozenset({"broadcast", "copy", "reshape", "reverse", "slice", "transpose"})
KEPT = ("frontend_attributes", "metadata", "sharding")


def splat(draft: Draft, name: str) -> Array | None:
    """Return the one value that all elements of an array are known to have, a scalar."""
    instr = draft[name]
    while instr.opcode in _SPREAD:
        instr = draft[instr.operands[0]]
    value = constant(instr)
    return value.reshape(()) if value is not None and value.size == 1 else None


def constant(instr: Instruction) -> Array | None:
    """Return the value of a constant array, unless the text elided it."""
    held = instr.payload
    return held.array if instr.opcode == "constant" and isinstance(held, Literal) else None


def is_splat(draft: Draft, name: str, wanted: float) -> bool:
    """Tell whether all elements equal `wanted`; 0 and -0 differ."""
    value = splat(draft, name)
    if value is None or value.dtype.kind == "c":
        return False
    same_sign = np.signbit(value.astype(np.float64)) == np.signbit(float(wanted))
    return bool(value == wanted and (wanted != 0 or same_sign))


def filled(draft: Draft, instr: Instruction, value: Array) -> Instruction:
    """Return `instr` as an array whose elements are all `value`, a scalar."""
    assert isinstance(instr.shape, Shape)
    if not instr.shape.dims:
        return made(instr, "constant", payload=Literal(instr.shape, value))
    scalar = add_filled(draft, instr, Shape(instr.shape.dtype), value)
    return made(instr, "broadcast", (scalar,), {"dimensions": ()})


def add_filled(draft: Draft, like: Instruction, shape: Shape, value: Array) -> str:
    """Add an array of `shape` whose elements are all `value`, a scalar; return its name."""
    scalar = Shape(shape.dtype)
    name = draft.add(like, "constant", scalar, payload=Literal(scalar, value))
    if not shape.dims:
        return name
    return draft.add(like, "broadcast", shape, (name,), {"dimensions": ()})


def filled_with(draft: Draft, instr: Instruction, number: int) -> Instruction:
    """Return `instr` as an array of one integer, or truth."""
    assert isinstance(instr.shape, Shape)
    return filled(draft, instr, np.asarray(number).astype(instr.shape.dtype.numpy))


def made(
    instr: Instruction,
    opcode: str,
    operands: Sequence[str] = (),
    attrs: Mapping[str, Attribute] | None = None,
    payload: Literal | None = None,
) -> Instruction:
    """Return what stands for `instr`: its name, shape and place in the source, computed so."""
    kept = {name: instr.attrs[name] for name in KEPT if name in instr.attrs}
    return Instruction(
        instr.name,
        opcode,
        instr.shape,
        tuple(operands),
        {**(attrs or {}), **kept},
        payload,
        instr.span,
    )


def numbers(instr: Instruction, attr: str = "dimensions") -> tuple[int, ...]:
    """Return a list of integers among the attributes; one that is absent is empty."""
    held = instr.attrs.get(attr, ())
    assert isinstance(held, tuple)
    return tuple(n for n in held if isinstance(n, int))


def ranges_of(instr: Instruction) -> tuple[SliceDim, ...]:
    """Return what a slice takes of each dimension."""
    held = instr.attrs.get("slice", ())
    assert isinstance(held, tuple)
    return tuple(dim for dim in held if isinstance(dim, SliceDim))
