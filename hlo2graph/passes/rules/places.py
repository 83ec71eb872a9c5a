"""Arrays of places: what counts along a dimension, however it was moved, sorted or chosen.

Their bounds decide the tests that index arithmetic makes of them; and what is gathered where a sort
says that its own elements stood is what it sorted.
"""

from __future__ import annotations

from hlo2graph.hlo import Instruction, Shape
from hlo2graph.ops.expect import integer
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.values import numbers

_MOVES = frozenset({"broadcast", "copy", "reshape", "reverse", "slice", "transpose"})


def bounds(draft: Draft, name: str) -> tuple[int, int] | None:
    """Return the least and the largest number that an array may hold, if it is of places."""
    instr: Instruction | None = draft[name]
    while instr is not None:
        if instr.opcode == "iota":
            return _of_iota(instr)
        if instr.opcode in _MOVES:
            instr = draft[instr.operands[0]]
        elif instr.opcode == "get-tuple-element":
            found = draft[instr.operands[0]]
            if found.opcode == "topk" and integer(instr, "index") == 1:
                return 0, max(0, draft.shape(found.operands[0]).dims[-1] - 1)
            instr = sorted_operand(draft, instr)
        else:
            return None
    return None


def sorted_operand(draft: Draft, part: Instruction) -> Instruction | None:
    """Return what is sorted, where `part` is an array of a sort's result."""
    found = draft[part.operands[0]]
    return draft[found.operands[integer(part, "index")]] if found.opcode == "sort" else None


def sorted_already(draft: Draft, gather: Instruction) -> tuple[str, int] | None:
    """Return the sort, and which of its results has what is gathered."""
    source, indices = (draft[o] for o in gather.operands)
    while indices.opcode == "reshape":
        indices = draft[indices.operands[0]]
    if indices.opcode != "get-tuple-element" or not isinstance(indices.shape, Shape):
        return None
    counted = sorted_operand(draft, indices)
    found = draft[indices.operands[0]]
    if counted is None or source.name not in found.operands:
        return None
    (along,), number = numbers(found), found.operands.index(source.name)
    alike = list(found.shape.leaves())[number] == gather.shape
    if not (alike and _takes_single(draft, gather, along) and _counts(draft, counted, along)):
        return None
    return found.name, number


def _of_iota(instr: Instruction) -> tuple[int, int] | None:
    assert isinstance(instr.shape, Shape)
    shape, last = instr.shape, instr.shape.dims[integer(instr, "iota_dimension")] - 1
    fits = shape.dtype.is_integer and last <= shape.dtype.limits[1]
    return (0, max(0, last)) if fits else None


def _counts(draft: Draft, instr: Instruction, along: int) -> bool:
    """Tell whether an array holds each element's place along a dimension."""
    if instr.opcode == "broadcast":
        dims = numbers(instr)
        instr = draft[instr.operands[0]]
        return dims == (along,) and _counts(draft, instr, 0)
    if instr.opcode != "iota" or integer(instr, "iota_dimension") != along:
        return False
    return _of_iota(instr) is not None


def _takes_single(draft: Draft, gather: Instruction, along: int) -> bool:
    """Tell whether each index is a place along a dimension of its own row."""
    source, indices = (draft.shape(o) for o in gather.operands)
    others = tuple(d for d in range(source.rank) if d != along)
    return (
        source.dims == draft.shape(gather.name).dims
        and indices.dims == (*source.dims, 1)
        and integer(gather, "index_vector_dim") == source.rank
        and not numbers(gather, "offset_dims")
        and numbers(gather, "collapsed_slice_dims") == (along,)
        and numbers(gather, "start_index_map") == (along,)
        and numbers(gather, "operand_batching_dims") == others
        and numbers(gather, "start_indices_batching_dims") == others
    )
