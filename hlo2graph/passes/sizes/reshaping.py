"""How sizes go through reshapes: the elements that count keep their order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo2graph.hlo import Instruction, Shape
from hlo2graph.passes.sizes.body import SIZE, Body
from hlo2graph.passes.sizes.packing import repacked
from hlo2graph.passes.sizes.value import UnfollowedError, Value, on_each_leaf


def dynamic_reshape(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Give the elements that count, in order, the sizes that are given."""
    value, *given = values
    target = _target(instr)
    sizes = {d: given[d].name for d in target.dynamic}
    name = repacked(body, value, target.dims, sizes)
    return body.stands(instr, name, on_each_leaf(SIZE, sizes))


def reshape(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Reshape what counts; where no gap moves, by a plain reshape.

    Of the dimensions that one of unknown size becomes, one may be of unknown size. If the text
    says of none of several that it is, all of the array counts from there on.
    """
    (value,) = values
    target, sizes = _target(instr), {}
    kept, stays = dict(value.sizes), True
    for sources, targets in _groups(value.array.dims, target.dims):
        live = [d for d in sources if d in value.along]
        if not live:
            continue
        dim = _open(instr, targets)
        if dim is None:
            for source in live:
                del kept[0, source]
            continue
        others = prod(target.dims[d] for d in targets if d != dim)
        sizes[dim] = _share(body, value, sources, others)
        stays = (
            stays
            and _is_head(value.array.dims, sources, live)
            and _is_head(target.dims, targets, [dim])
        )
    found = on_each_leaf(SIZE, sizes)
    if stays:
        return body.keep(instr, [value.name], found)
    moved = repacked(body, Value(value.name, value.shape, kept), target.dims, sizes)
    return body.stands(instr, moved, found)


def _target(instr: Instruction) -> Shape:
    assert isinstance(instr.shape, Shape)
    return instr.shape


def _open(instr: Instruction, targets: Sequence[int]) -> int | None:
    """Return which of the dimensions that elements go to has a size of its own."""
    target = _target(instr)
    written = [d for d in targets if d in target.dynamic]
    longer = [d for d in targets if target.dims[d] != 1]
    found = written or longer
    if len(written) > 1:
        raise UnfollowedError(instr)
    return found[0] if len(found) == 1 else None


def _share(body: Body, value: Value, sources: Sequence[int], others: int) -> str:
    """Return the elements along some dimensions, divided among `others`."""
    static = prod(value.array.dims[d] for d in sources if d not in value.along)
    first, *more = [value.along[d] for d in sources if d in value.along]
    for size in more:
        first = body.count("multiply", first, size)
    if static % others == 0:
        return first if static == others else body.count("multiply", first, static // others)
    total = first if static == 1 else body.count("multiply", first, static)
    return body.count("divide", total, others)


def _is_head(dims: Sequence[int], among: Sequence[int], live: Sequence[int]) -> bool:
    """Tell whether the one live dimension has nothing but ones before it."""
    longer = [d for d in among if dims[d] != 1 or d in live]
    return list(live) == longer[:1]


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[range, range]]:
    """Return the smallest runs of dimensions that hold as many elements before as after."""
    groups: list[tuple[range, range]] = []
    left, right = 0, 0
    while left < len(before) or right < len(after):
        sources = range(left, min(left + 1, len(before)))
        targets = range(right, min(right + 1, len(after)))
        while (sources.stop, targets.stop) != (len(before), len(after)):
            have = prod(before[d] for d in sources)
            need = prod(after[d] for d in targets)
            if have == need:
                break
            if targets.stop == len(after) or (have < need and sources.stop < len(before)):
                sources = range(left, sources.stop + 1)
            else:
                targets = range(right, targets.stop + 1)
        left, right = sources.stop, targets.stop
        groups.append((sources, targets))
    return groups
