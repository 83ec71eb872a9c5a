"""Rules of dynamic-update-slice, and when an update is better not made in place."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.hlo import Instruction, Shape, SliceDim
from hlo2graph.ops import OPS
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.values import Found, made, ranges_of, splat

MOST_FOLLOWED = 256  # instructions between an update and what it updates

_MOVING = frozenset({"broadcast", "concatenate", "pad", "reshape", "reverse", "slice", "transpose"})


def dynamic_update_slice(draft: Draft, instr: Instruction) -> Found:
    """Leave out an update by nothing, or of everything; put neighbours' work together anew.

    An update that is computed from other elements of the array that it updates cannot be made in
    place while these are read. Where it is put at a known place, and is at least half of the array,
    the result is rather what lies around it, joined with it: one kernel computes that.
    """
    target, update, *_ = instr.operands
    if draft.shape(update).dims == draft.shape(target).dims:
        return update
    if not draft.shape(update).elements:
        return target
    if 2 * draft.shape(update).elements < draft.shape(target).elements:
        return None
    window = known_window(draft, instr)
    if window is None or not _reads_others(draft, update, target, window):
        return None
    return joined(draft, instr, window)


def known_window(draft: Draft, instr: Instruction) -> tuple[SliceDim, ...] | None:
    """Return what an update updates, moved inside the array; None where it may be elsewhere."""
    target, update = (draft.shape(name) for name in instr.operands[:2])
    known = [splat(draft, name) for name in instr.operands[2:]]
    places = [int(k) for k in known if k is not None]
    if len(places) < target.rank:
        return None
    sizes = zip(places, update.dims, target.dims, strict=True)
    starts = ((max(0, min(at, whole - size)), size) for at, size, whole in sizes)
    return tuple(SliceDim(start, start + size) for start, size in starts)


def _reads_others(draft: Draft, update: str, target: str, window: tuple[SliceDim, ...]) -> bool:
    """Tell whether the update reads elements of the target outside of their place.

    What a kernel of its own computes in between, a product or a fold, has read them before.
    """
    seen: set[str] = set()
    pending = [update]
    while pending and len(seen) < MOST_FOLLOWED:
        instr = draft[pending.pop()]
        if instr.name in seen:
            continue
        seen.add(instr.name)
        if not OPS[instr.opcode].elementwise and instr.opcode not in _MOVING:
            continue
        if target in instr.operands:
            if instr.opcode != "slice" or ranges_of(instr) != window:
                return True
            continue
        pending += instr.operands
    return False


def joined(draft: Draft, instr: Instruction, window: Sequence[SliceDim]) -> Instruction:
    """Return an update with what lies before and behind it, dimension by dimension, if any does."""
    target, middle, *_ = instr.operands
    whole = [SliceDim(0, n) for n in draft.shape(target).dims]
    partial = [d for d, r in enumerate(window) if r != whole[d]]
    if not partial:
        return made(instr, "copy", (middle,))
    ranges = list(window)
    for dim in reversed(partial[1:]):
        parts = _around(draft, instr, ranges, dim, middle)
        ranges[dim] = whole[dim]
        shape = _cut(draft.shape(target), ranges)
        along = {"dimensions": (dim,)}
        middle = draft.add(instr, "concatenate", shape, parts, along)
    parts = _around(draft, instr, ranges, partial[0], middle)
    return made(instr, "concatenate", parts, {"dimensions": (partial[0],)})


def _around(
    draft: Draft, instr: Instruction, ranges: Sequence[SliceDim], dim: int, middle: str
) -> list[str]:
    """Return what of the target lies before `middle` along a dimension, `middle`, and the rest."""
    target = instr.operands[0]
    shape = draft.shape(target)

    def cut(low: int, high: int) -> list[str]:
        if low == high:
            return []
        part = (*ranges[:dim], SliceDim(low, high), *ranges[dim + 1 :])
        return [draft.add(instr, "slice", _cut(shape, part), (target,), {"slice": part})]

    before, behind = cut(0, ranges[dim].start), cut(ranges[dim].limit, shape.dims[dim])
    return [*before, middle, *behind]


def _cut(shape: Shape, ranges: Sequence[SliceDim]) -> Shape:
    return Shape(shape.dtype, tuple(r.limit - r.start for r in ranges))
