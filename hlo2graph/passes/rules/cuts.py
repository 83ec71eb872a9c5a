"""Rules of slice, dynamic-slice, pad and concatenate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from hlo2graph.hlo import Instruction, PaddingDim, Shape, SliceDim
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.values import Found, Rule, made, numbers, ranges_of, splat


def slice_(draft: Draft, instr: Instruction) -> Found:
    """Leave out a slice of all; cut earlier: from a slice, a broadcast or a concatenation."""
    [operand] = draft.operands(instr)
    shape, ranges = _array(instr), ranges_of(instr)
    if shape.dims == draft.shape(operand.name).dims:
        return operand.name
    if operand.opcode == "slice":
        merged = tuple(map(_within, ranges_of(operand), ranges))
        return made(instr, "slice", operand.operands, {"slice": merged})
    if operand.opcode == "broadcast":
        source = draft.shape(operand.operands[0])
        dims = numbers(operand)
        if tuple(shape.dims[d] for d in dims) == source.dims:
            return made(instr, "broadcast", operand.operands, {"dimensions": dims})
    if operand.opcode == "concatenate":
        return _of_one_part(draft, instr, operand)
    return None


def dynamic_slice(draft: Draft, instr: Instruction) -> Found:
    """Cut at known indices, or all of an array, without looking at indices."""
    source, *starts = instr.operands
    given, shape = draft.shape(source), _array(instr)
    if given.dims == shape.dims:
        return source
    if len(starts) != shape.rank:
        return None
    ranges = []
    for name, size, whole in zip(starts, shape.dims, given.dims, strict=True):
        start = 0 if size == whole else splat(draft, name)
        if start is None:
            return None
        at = max(0, min(int(start), whole - size))
        ranges.append(SliceDim(at, at + size))
    return made(instr, "slice", (source,), {"slice": tuple(ranges)})


def pad(draft: Draft, instr: Instruction) -> Found:
    """Leave out padding by nothing; negative padding is a slice."""
    source, value = instr.operands
    given, dims = draft.shape(source), _padding(instr)
    if not given.elements:
        return made(instr, "broadcast", (value,), {"dimensions": ()})
    inside = [n == 1 or not d.interior for d, n in zip(dims, given.dims, strict=True)]
    if not all(inside) or any(d.low > 0 or d.high > 0 for d in dims):
        return None
    if given.dims == _array(instr).dims:
        return source
    ranges = [SliceDim(-d.low, n + d.high) for d, n in zip(dims, given.dims, strict=True)]
    if any(r.start > r.limit for r in ranges):
        return None
    return made(instr, "slice", (source,), {"slice": tuple(ranges)})


def concatenate(draft: Draft, instr: Instruction) -> Found:
    """Leave out empty parts; join neighbours that were cut from one array; take in a part's."""
    [along] = numbers(instr)
    parts: list[str] = []
    for name in instr.operands:
        inner = draft[name]
        if not draft.shape(name).elements and len(instr.operands) > 1:
            continue
        same = inner.opcode == "concatenate" and numbers(inner) == (along,)
        if same and len(draft.users[name]) == 1:
            parts += inner.operands
        else:
            parts.append(name)
    parts = parts or [instr.operands[0]]
    joined = _joined(draft, instr, parts, along)
    if len(joined) == 1:
        return joined[0]
    if tuple(joined) == instr.operands:
        return None
    return made(instr, "concatenate", joined, {"dimensions": (along,)})


def _of_one_part(draft: Draft, instr: Instruction, whole: Instruction) -> Found:
    """Slice one operand of a concatenation where the slice lies inside it."""
    [along] = numbers(whole)
    ranges = ranges_of(instr)
    wanted = ranges[along]
    if not _array(instr).elements:
        return None
    ends = accumulate(draft.shape(name).dims[along] for name in whole.operands)
    first = 0
    for name, end in zip(whole.operands, ends, strict=True):
        last = wanted.start + (_array(instr).dims[along] - 1) * wanted.stride
        if first <= wanted.start and last < end:
            limit = min(wanted.limit, end) - first
            moved = SliceDim(wanted.start - first, limit, wanted.stride)
            cut = (*ranges[:along], moved, *ranges[along + 1 :])
            return made(instr, "slice", (name,), {"slice": cut})
        first = end
    return None


def _joined(draft: Draft, instr: Instruction, parts: Sequence[str], along: int) -> list[str]:
    """Return the parts, neighbours that continue each other in one array taken as one slice."""
    found: list[str] = []
    for name in parts:
        both = _continued(draft, found[-1], name, along) if found else None
        if both is None:
            found.append(name)
            continue
        source, ranges = both
        dims = tuple(r.limit - r.start for r in ranges)
        shape = Shape(draft.shape(source).dtype, dims)
        found[-1] = draft.add(instr, "slice", shape, (source,), {"slice": ranges})
    return found


def _continued(
    draft: Draft, left: str, right: str, along: int
) -> tuple[str, tuple[SliceDim, ...]] | None:
    """Return of which array the two slices, side by side, are which slice."""
    a, b = draft[left], draft[right]
    if a.opcode != "slice" or b.opcode != "slice" or a.operands != b.operands:
        return None
    pairs = list(zip(ranges_of(a), ranges_of(b), strict=True))
    if any(r.stride != 1 for pair in pairs for r in pair):
        return None
    others = (x == y for d, (x, y) in enumerate(pairs) if d != along)
    before, after = pairs[along]
    if before.limit != after.start or not all(others):
        return None
    ranges = [x for x, _ in pairs]
    ranges[along] = SliceDim(before.start, after.limit)
    return a.operands[0], tuple(ranges)


def _within(outer: SliceDim, inner: SliceDim) -> SliceDim:
    """Return the range of the array before both cuts, the outer one made first."""
    start = outer.start + inner.start * outer.stride
    count = -(-(inner.limit - inner.start) // inner.stride)
    stride = outer.stride * inner.stride
    return SliceDim(start, start + (count - 1) * stride + 1, stride) if count else SliceDim(0, 0)


def _padding(instr: Instruction) -> tuple[PaddingDim, ...]:
    held = instr.attrs.get("padding", ())
    assert isinstance(held, tuple)
    return tuple(dim for dim in held if isinstance(dim, PaddingDim))


def _array(instr: Instruction) -> Shape:
    assert isinstance(instr.shape, Shape)
    return instr.shape


CUTS: dict[str, Rule] = {
    "concatenate": concatenate,
    "dynamic-slice": dynamic_slice,
    "pad": pad,
    "slice": slice_,
}
