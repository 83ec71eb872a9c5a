"""How attention is known: a product whose one operand comes, row by row, of another product.

The scores are a dot's; weights are made of them element by element and by reduces along the keys, a
softmax say; the product sums values by these weights. Each row of weights is made where it is
needed, so that neither scores nor weights are ever stored. That takes

- one dimension of keys, which all reduces fold and the product sums over, and the same batches in
  both dots, whatever order scores and weights have their dimensions in, and whatever dimensions of
  size 1 stand between them;
- types and sizes for which `_suits` holds;
- that nothing else looks at the scores, or at what is made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.hlo import Computation, DType, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import integers
from hlo2graph.ops.own_dot import takes_tensor_cores
from hlo2graph.ops.region_masks import Mask, Places, masks_of
from hlo2graph.ops.region_softmax import are_shares, softmax_of

MOST_KEYS = 512  # whose scores a block holds
FEWEST_KEYS = 32  # below which a reduce is no fold of its own
FEW_ROWS = 8  # of queries that share keys, up to which tensor cores' tiles would be half empty
MOST_LONG = 2048  # keys, where rows are that few, or of f32, which may have to be held
MANY_BLOCKS = 128  # of few rows, each with keys of its own
MOST_CLUSTER = 8  # blocks that share out the keys, where there are fewer
MOST_BYTES = 1 << 19  # of keys and values that each of many blocks reads
MOST_SHARED = 1 << 20  # the same where warps share rows
LONGEST = 1 << 16  # keys of rows of 16 bits, all whose scores are never held at once
MOST_LONG_STEPS = 128  # of their scores' sums, and elements of their values
MOST_STEPS = 256  # of a score's sum, and elements of a value
MOST_FLOPS = 1 << 33  # of either product: more is not measured
_SIDES = ("lhs", "rhs")


@dataclass(frozen=True, slots=True)
class View:
    """A value that shows another in another order: where dimensions of both are in the scores."""

    name: str
    source: str
    shown: Places
    places: Places


@dataclass(frozen=True, slots=True)
class Weighing:
    """The dots `scores` and `product`, and which operand of the latter the weights are.

    side: which operand of `scores` has the keys; key: their dimension of the scores.
    batch, rows: for each batch dimension of the scores, and each dimension of them that queries
    have, its number among those of the product.
    folded: where the dimensions of what the first reduce folds are in the scores; those of others
    are in the same order.
    views: what shows scores, or what is made of them, in another order.
    masks: what has a score in some places only, told by the keys.
    within: the names of what the weights are made of, in order.
    """

    scores: str
    product: str
    weights: int
    side: int
    key: int
    batch: Places
    rows: Places
    folded: Places
    views: tuple[View, ...]
    masks: tuple[Mask, ...]
    within: tuple[str, ...]


def weighing_of(computation: Computation, folds: Sequence[Instruction]) -> Weighing | None:
    """Return how the folds of a computation make attention, if they do."""
    dots = [fold for fold in folds if fold.opcode == "dot"]
    reduces = [fold for fold in folds if fold.opcode == "reduce"]
    if len(dots) != 2 or not reduces or len(dots) + len(reduces) != len(folds):
        return None
    scores, product = dots
    waiting = _waiting(computation, scores.name, until=product.name)
    sides = [k for k, name in enumerate(product.operands) if name in waiting]
    if len(sides) != 1 or len(product.operands) != 2:
        return None
    [weights] = sides
    within = _within(computation, product.operands[weights])
    is_closed = _is_closed(computation, waiting, within, product.name)
    if not is_closed or any(reduce.name not in within for reduce in reduces):
        return None
    order = [i for i in computation.instructions if i.name in within]
    places = _places(computation, order, scores)
    of_weights = places.get(product.operands[weights]) if places else None
    of_folded = _folded(reduces, places) if places else None
    if not places or of_weights is None or of_folded is None:
        return None
    dims = _matched(computation, scores, product, weights, of_weights)
    is_softmax = _is_softmax(computation, reduces, product.operands[weights])
    if dims is None or not _suits(computation, scores, product, is_softmax=is_softmax):
        return None
    views = tuple(
        View(i.name, i.operands[0], places[i.operands[0]], places[i.name])
        for i in order
        if i.opcode in ("reshape", "transpose") and i.name in places
    )
    masks = masks_of(computation, order, places, dims[1])
    names = tuple(i.name for i in order)
    return Weighing(scores.name, product.name, weights, *dims, of_folded, views, masks, names)


def _is_softmax(computation: Computation, reduces: Sequence[Instruction], weights: str) -> bool:
    """Tell whether weights are a softmax's, as they are where scores stay in registers."""
    found = softmax_of(computation, None, [[reduce.name] for reduce in reduces])
    return found is not None and are_shares(computation, found, weights)


def _folded(reduces: Sequence[Instruction], places: dict[str, Places]) -> Places | None:
    """Return where the dimensions of what the first reduce folds are, if others' are as there."""
    first, *others = (places.get(reduce.operands[0]) for reduce in reduces)
    if first is None:
        return None
    alike = all(other is not None and _lasting(other) == _lasting(first) for other in others)
    return first if alike else None


def _suits(
    computation: Computation, scores: Instruction, product: Instruction, *, is_softmax: bool
) -> bool:
    """Tell whether one kernel does well at two products, the second of what the first makes."""
    found = []
    for dot in (scores, product):
        lhs, rhs = (_array(computation[name]) for name in dot.operands)
        steps = prod(lhs.dims[d] for d in integers(dot, "lhs_contracting_dims", ()))
        if not takes_tensor_cores(dot, lhs, rhs):
            return False
        found.append(steps)
    deep, keys = found
    outer = prod(_array(scores).dims[: len(integers(scores, "lhs_batch_dims", ()))])
    rows = _array(scores).elements // max(1, keys * outer)
    width = _array(product).elements // max(1, rows * outer)
    dtype = _array(computation[scores.operands[0]]).dtype
    if rows <= FEW_ROWS:
        read = keys * (deep + width) * dtype.size
        in_registers = is_softmax and max(deep, width) <= MOST_LONG_STEPS
        longest = LONGEST if _are_shared(rows, dtype) and in_registers else MOST_LONG
        most = longest if read <= _most_read(rows, outer, dtype) else 0
    elif max(deep, width) <= MOST_LONG_STEPS:
        most = LONGEST if dtype.size == 2 else MOST_LONG
    else:
        flops = 2 * rows * outer * keys * max(deep, width)
        most = MOST_KEYS if flops <= MOST_FLOPS else 0
    return (
        FEWEST_KEYS <= keys <= most
        and 0 < deep <= MOST_STEPS
        and 0 < width <= MOST_STEPS
        and rows > 0
    )


def _most_read(rows: int, blocks: int, dtype: DType) -> int:
    """Return how many bytes of keys and values may be read for few rows.

    With more, or with fewer blocks, three kernels do better: they share out keys among more blocks.
    """
    if _are_shared(rows, dtype):
        return MOST_SHARED * max(1, min(MOST_CLUSTER, MANY_BLOCKS // max(1, blocks)))
    return (MOST_BYTES if blocks >= MANY_BLOCKS else MOST_BYTES // 8) // rows


def _are_shared(rows: int, dtype: DType) -> bool:
    """Tell whether many warps read keys for the same few rows at once, on tensor cores."""
    return rows > 1 and dtype.size == 2


def _waiting(computation: Computation, first: str, until: str) -> set[str]:
    """Return `first` and what waits for it, of what stands before `until`."""
    found = {first}
    for instr in computation.instructions:
        if instr.name == until:
            break
        if not found.isdisjoint(instr.operands):
            found.add(instr.name)
    return found


def _within(computation: Computation, name: str) -> set[str]:
    found, pending = {name}, [name]
    while pending:
        fresh = [o for o in computation[pending.pop()].operands if o not in found]
        found.update(fresh)
        pending += fresh
    return found


def _is_closed(computation: Computation, waiting: set[str], within: set[str], product: str) -> bool:
    """Tell whether all that waits for the scores is there for the weights, and they for all."""
    users = {
        instr.name
        for instr in computation.instructions
        if instr.name != product and not waiting.isdisjoint(instr.operands)
    }
    return users | waiting <= within and computation.root not in waiting


def _places(
    computation: Computation, order: Iterable[Instruction], scores: Instruction
) -> dict[str, Places] | None:
    """Return where the dimensions of all that has an element a score are; None if one has none."""
    dims = _array(scores).dims
    found: dict[str, Places] = {scores.name: _live(dims, range(len(dims)))}
    for instr in order:
        sources = {found[o] for o in instr.operands if o in found}
        if not sources or instr.opcode == "reduce":
            continue
        places = _placed(computation, instr, sources.pop()) if len(sources) == 1 else None
        if places is None:
            return None
        found[instr.name] = places
    return found


def _placed(computation: Computation, instr: Instruction, source: Places) -> Places | None:
    """Return the places of a value's dimensions, given those of what it is made of."""
    if not isinstance(instr.shape, Shape):
        return None
    dims, before = instr.shape.dims, _array(computation[instr.operands[0]]).dims
    if instr.opcode == "transpose":
        return tuple(source[d] for d in integers(instr, "dimensions"))
    if instr.opcode == "reshape":
        live = _lasting(source)
        is_same = [n for n in dims if n != 1] == [n for n in before if n != 1]
        return _live(dims, live) if is_same else None
    return source if OPS[instr.opcode].elementwise and len(dims) == len(source) else None


def _lasting(places: Places) -> list[int]:
    return [place for place in places if place is not None]


def _live(dims: Sequence[int], places: Iterable[int]) -> Places:
    """Return places for dimensions larger than 1, given for those alone or for all."""
    given = list(places)
    if len(given) == len(dims):
        return tuple(None if n == 1 else at for at, n in zip(given, dims, strict=True))
    left = iter(given)
    return tuple(None if n == 1 else next(left) for n in dims)


def _matched(
    computation: Computation,
    scores: Instruction,
    product: Instruction,
    weights: int,
    places: Places,
) -> tuple[int, int, Places, Places] | None:
    """Return the operand and the dimension of the scores that have the keys; batches and rows."""
    dims = _array(scores).dims
    summed = integers(product, f"{_SIDES[weights]}_contracting_dims", ())
    over = integers(product, f"{_SIDES[weights]}_batch_dims", ())
    free = [d for d in range(len(places)) if d not in (*summed, *over)]
    batch = len(integers(scores, "lhs_batch_dims", ()))
    lhs = _array(computation[scores.operands[0]])
    middle = lhs.rank - len(integers(scores, "lhs_contracting_dims", ()))
    sides = (range(batch, middle), range(middle, len(dims)))
    keys = [place for d in summed if (place := places[d]) is not None]
    if len(keys) != 1:
        return None
    side = int(keys[0] in sides[1])
    if [d for d in sides[side] if dims[d] != 1] != keys:
        return None
    found = []
    for of_scores, of_product in ((range(batch), over), (sides[1 - side], free)):
        given = [places[d] for d in of_product]
        wanted = [d for d in of_scores if dims[d] != 1]
        if sorted(place for place in given if place is not None) != wanted:
            return None
        found.append(tuple(given.index(d) if dims[d] != 1 else None for d in of_scores))
    return side, keys[0], found[0], found[1]


def _array(instr: Instruction) -> Shape:
    assert isinstance(instr.shape, Shape)
    return instr.shape
