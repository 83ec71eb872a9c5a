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
    target = _target(instr)
    sizes, left = _of_ones(value, target)
    kept, stays = dict(value.sizes), True
    ones = [d for d in target.dynamic if target.dims[d] == 1 and d not in sizes]
    for sources, targets in _groups(value.array.dims, target.dims):
        live = [d for d in sources if d in value.along]
        if not live:
            continue
        dim = ones.pop(0) if ones and not {*targets} & {*target.dynamic} else _open(instr, targets)
        if dim is None:
            for source in live:
                del kept[0, source]
            continue
        others = prod(target.dims[d] for d in targets if d != dim)
        sizes[dim] = _share(body, value, sources, others)
        stays = stays and live == sources[:1] and dim == targets[0]
    for size in left:
        unsized = [d for d in target.dynamic if d not in sizes]
        for dim in (unsized or sorted(sizes))[:1]:
            whole = sizes.get(dim) or body.number(target.dims[dim])
            sizes[dim] = body.count("multiply", whole, size)
    found = on_each_leaf(SIZE, sizes)
    if stays:
        return body.keep(instr, [value.name], found)
    moved = repacked(body, Value(value.name, value.shape, kept), target.dims, sizes)
    return body.stands(instr, moved, found)


def _of_ones(value: Value, target: Shape) -> tuple[dict[int, str], list[str]]:
    """Return the sizes of dimensions of at most one element: where they go, and those left."""
    sources = [size for d, size in sorted(value.along.items()) if value.array.dims[d] == 1]
    targets = [d for d in target.dynamic if target.dims[d] == 1]
    return dict(zip(targets, sources, strict=False)), sources[len(targets) :]


def _target(instr: Instruction) -> Shape:
    assert isinstance(instr.shape, Shape)
    return instr.shape


def _open(instr: Instruction, targets: Sequence[int]) -> int | None:
    """Return which of the dimensions that elements go to has a size of its own."""
    target = _target(instr)
    written = [d for d in targets if d in target.dynamic]
    if len(written) > 1:
        raise UnfollowedError(instr.name)
    found = written or targets
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


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest runs of dimensions, ones left out, that hold as many elements each."""
    left, right = _longer(before), _longer(after)
    groups: list[tuple[list[int], list[int]]] = []
    while left or right:
        sources, targets = left[:1], right[:1]
        while (len(sources), len(targets)) != (len(left), len(right)):
            have = prod(before[d] for d in sources)
            need = prod(after[d] for d in targets)
            if have == need:
                break
            if len(targets) == len(right) or (have < need and len(sources) < len(left)):
                sources = left[: len(sources) + 1]
            else:
                targets = right[: len(targets) + 1]
        left, right = left[len(sources) :], right[len(targets) :]
        groups.append((sources, targets))
    return groups


def _longer(dims: Sequence[int]) -> list[int]:
    return [d for d, n in enumerate(dims) if n != 1]
