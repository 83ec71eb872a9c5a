"""Rules of broadcast, reshape, transpose and reverse: none that moves nothing, no two in a row."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.hlo import Instruction, Shape
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.dots import turned
from hlo2graph.passes.rules.values import Found, Rule, filled_with, made, numbers


def broadcast(draft: Draft, instr: Instruction) -> Found:
    """Merge with what spreads or reshapes before; a broadcast that adds nothing is a reshape."""
    [operand] = draft.operands(instr)
    given, shape, dims = draft.shape(operand.name), _array(instr), numbers(instr)
    if operand.opcode == "broadcast":
        merged = tuple(dims[d] for d in numbers(operand))
        return made(instr, "broadcast", operand.operands, {"dimensions": merged})
    if given.elements == shape.elements and given.dims and list(dims) == sorted(dims):
        return operand.name if given.dims == shape.dims else made(instr, "reshape", instr.operands)
    if operand.opcode != "reshape":
        return None
    source = draft.shape(operand.operands[0]).dims
    kept = [d for d, n in zip(dims, given.dims, strict=True) if n != 1]
    if source != tuple(n for n in given.dims if n != 1):
        return None
    return made(instr, "broadcast", operand.operands, {"dimensions": tuple(kept)})


def reshape(draft: Draft, instr: Instruction) -> Found:
    """Merge with a reshape before, or with a broadcast of which it changes dimensions of one."""
    [operand] = draft.operands(instr)
    given, shape = draft.shape(operand.name), _array(instr)
    if given.dims == shape.dims:
        return operand.name
    if operand.opcode == "reshape":
        return made(instr, "reshape", operand.operands)
    if operand.opcode != "broadcast":
        return None
    dims = numbers(operand)
    if not dims:
        return made(instr, "broadcast", operand.operands, {"dimensions": ()})
    places = _places(given.dims, shape.dims)
    if places is None or any(d not in places for d in dims):
        return None
    moved = tuple(places[d] for d in dims)
    return made(instr, "broadcast", operand.operands, {"dimensions": moved})


def transpose(draft: Draft, instr: Instruction) -> Found:
    """Merge with a transpose, broadcast or dot before; moving dimensions of one is a reshape."""
    [operand] = draft.operands(instr)
    given, order = draft.shape(operand.name), numbers(instr)
    if list(order) == sorted(order):
        return operand.name
    if operand.opcode == "transpose":
        inner = numbers(operand)
        merged = tuple(inner[d] for d in order)
        return made(instr, "transpose", operand.operands, {"dimensions": merged})
    if operand.opcode == "broadcast":
        moved = tuple(order.index(d) for d in numbers(operand))
        return made(instr, "broadcast", operand.operands, {"dimensions": moved})
    wide = [d for d in order if given.dims[d] != 1]
    if wide == sorted(wide):
        return made(instr, "reshape", instr.operands)
    return turned(draft, instr)


def reverse(draft: Draft, instr: Instruction) -> Found:
    """Leave out dimensions of one or of equal elements, and what a reverse before undoes."""
    [operand] = draft.operands(instr)
    shape, dims = draft.shape(operand.name), numbers(instr)
    source = operand.operands[0] if operand.opcode == "reverse" else operand.name
    before = numbers(operand) if operand.opcode == "reverse" else ()
    turned = set(dims) ^ set(before)
    if operand.opcode == "broadcast":
        turned &= set(numbers(operand))
    left = tuple(sorted(d for d in turned if shape.dims[d] > 1))
    if not left:
        return source
    if source == operand.name and left == tuple(sorted(dims)):
        return None
    return made(instr, "reverse", (source,), {"dimensions": left})


def iota(draft: Draft, instr: Instruction) -> Found:
    """Count along a dimension of one: that gives zeros."""
    along = instr.attrs["iota_dimension"]
    assert isinstance(along, int)
    return filled_with(draft, instr, 0) if _array(instr).dims[along] == 1 else None


def copy(_: Draft, instr: Instruction) -> Found:
    """Leave out a copy into the same layout; the draft refuses others."""
    return instr.operands[0]


def _array(instr: Instruction) -> Shape:
    assert isinstance(instr.shape, Shape)
    return instr.shape


def _places(before: Sequence[int], after: Sequence[int]) -> dict[int, int] | None:
    """Return where dimensions of more than one go in a reshape that keeps them; None if none."""
    old = [d for d, n in enumerate(before) if n != 1]
    new = [d for d, n in enumerate(after) if n != 1]
    if [before[d] for d in old] != [after[d] for d in new]:
        return None
    return dict(zip(old, new, strict=True))


SHAPES: dict[str, Rule] = {
    "broadcast": broadcast,
    "copy": copy,
    "iota": iota,
    "reshape": reshape,
    "reverse": reverse,
    "transpose": transpose,
}
