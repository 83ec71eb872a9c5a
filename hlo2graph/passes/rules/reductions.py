"""Rules of reduce, and of gather and scatter that touch one place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hlo2graph.hlo import Instruction, Shape, SliceDim
from hlo2graph.ops.scalar_region import COMMUTATIVE, binary_reducer
from hlo2graph.ops.spec import Array
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.places import sorted_already
from hlo2graph.passes.rules.values import Found, Rule, add_filled, constant, made, numbers, splat

MOST_INDICES = 8  # of an index vector that is taken apart


def reduce(draft: Draft, instr: Instruction) -> Found:
    """Combine each element with the start where only dimensions of one are reduced."""
    if len(instr.operands) != 2 or not isinstance(instr.shape, Shape):
        return None
    source, init = instr.operands
    given = draft.shape(source)
    if any(given.dims[d] != 1 for d in numbers(instr)):
        return None
    opcode = binary_reducer(draft.computations, str(instr.attrs["to_apply"]))
    if opcode not in COMMUTATIVE or instr.shape.dtype is not given.dtype:
        return None
    start = draft.add(instr, "broadcast", instr.shape, (init,), {"dimensions": ()})
    value = draft.add(instr, "reshape", instr.shape, (source,))
    return made(instr, opcode, (value, start))


def gather(draft: Draft, instr: Instruction) -> Found:
    """Slice where one index vector says what to take: both move it inside the array.

    What is taken in the order that a sort of it found is what the sort gives.
    """
    if known := sorted_already(draft, instr):
        return made(instr, "get-tuple-element", known[:1], {"index": known[1]})
    source, indices = instr.operands
    given, shape = draft.shape(source), draft.shape(instr.name)
    mapped, sizes = numbers(instr, "start_index_map"), numbers(instr, "slice_sizes")
    alone = 0 < draft.shape(indices).elements == len(mapped) <= MOST_INDICES
    if not alone or not shape.elements or numbers(instr, "operand_batching_dims"):
        return None
    scalar = Shape(draft.shape(indices).dtype)
    starts = [""] * given.rank
    flat = draft.add(instr, "reshape", replace(scalar, dims=(len(mapped),)), (indices,))
    for k, dim in enumerate(mapped):
        cut = {"slice": (SliceDim(k, k + 1),)}
        one = draft.add(instr, "slice", replace(scalar, dims=(1,)), (flat,), cut)
        starts[dim] = draft.add(instr, "reshape", scalar, (one,))
    zero = np.zeros((), scalar.dtype.numpy)
    starts = [s or add_filled(draft, instr, scalar, zero) for s in starts]
    slices = Shape(given.dtype, sizes)
    attrs = {"dynamic_slice_sizes": sizes}
    taken = draft.add(instr, "dynamic-slice", slices, (source, *starts), attrs)
    return made(instr, "reshape", (taken,))


def scatter(draft: Draft, instr: Instruction) -> Found:
    """Update in place where one known index vector puts a window inside the array.

    What is there is combined with the updates before, where that is to be.
    """
    if len(instr.operands) != 3 or not isinstance(instr.shape, Shape):
        return None
    root = draft.computations[str(instr.attrs["to_apply"])].result
    replaces = root.opcode == "parameter" and root.payload == 1
    opcode = binary_reducer(draft.computations, str(instr.attrs["to_apply"]))
    if not replaces and opcode is None:
        return None
    target, indices, updates = instr.operands
    vector = _known_vector(draft, indices)
    mapped = numbers(instr, "scatter_dims_to_operand_dims")
    if vector is None or len(vector) != len(mapped) or numbers(instr, "input_batching_dims"):
        return None
    given = draft.shape(target)
    dropped = numbers(instr, "inserted_window_dims")
    sizes = iter(draft.shape(updates).dims[d] for d in numbers(instr, "update_window_dims"))
    window = tuple(1 if d in dropped else next(sizes) for d in range(given.rank))
    starts = [0] * given.rank
    for dim, start in zip(mapped, vector, strict=True):
        starts[dim] = int(start)
    places = zip(starts, window, given.dims, strict=True)
    if any(start < 0 or start + size > whole for start, size, whole in places):
        return None
    index = Shape(draft.shape(indices).dtype)
    names = [
        add_filled(draft, instr, index, np.asarray(start).astype(index.dtype.numpy))
        for start in starts
    ]
    shape = Shape(given.dtype, window)
    update = draft.add(instr, "reshape", shape, (updates,))
    if opcode is not None:
        ranges = tuple(SliceDim(at, at + size) for at, size in zip(starts, window, strict=True))
        there = draft.add(instr, "slice", shape, (target,), {"slice": ranges})
        update = draft.add(instr, opcode, shape, (there, update))
    return made(instr, "dynamic-update-slice", (target, update, *names))


def _known_vector(draft: Draft, indices: str) -> Array | None:
    """Return the elements of an array of indices that are known and few."""
    count = draft.shape(indices).elements
    if not 0 < count <= MOST_INDICES:
        return None
    value = splat(draft, indices)
    if value is not None:
        return np.broadcast_to(value, (count,))
    held = constant(draft[indices])
    return None if held is None else held.reshape(-1)


REDUCTIONS: dict[str, Rule] = {"gather": gather, "reduce": reduce, "scatter": scatter}
