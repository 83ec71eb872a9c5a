"""How attention is known: a product whose one operand comes, row by row, of another product.

The scores are a dot's; weights are made of them element by element and by reduces along the keys, a
softmax say; the product sums values by these weights. Each row of weights is made where it is
needed, so that neither scores nor weights are ever stored. That takes

- one dimension of keys, the scores' last one but for sizes of 1, that all reduces fold and the
  product sums over, and the same batch dimensions of both dots;
- types and sizes for which `_suits` holds;
- that nothing else looks at the scores, or at what is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import integers
from hlo2graph.ops.own_dot import takes_tensor_cores

MOST_KEYS = 512  # whose scores a block holds
FEWEST_KEYS = 32  # below which a reduce is no fold of its own
FEWEST_ROWS = 16  # of queries that share keys, below which most of a tile would be empty
MOST_STEPS = 256  # of a score's sum, and elements of a value
MOST_FLOPS = 1 << 30  # of either product, beyond which a library's calls take less
_SIDES = ("lhs", "rhs")


@dataclass(frozen=True, slots=True)
class Weighing:
    """The dots `scores` and `product`, and which operand of the latter the weights are.

    keys: the dimension of the scores that is summed over; side: the operand of `scores` that it
    comes from; within: the names of what the weights are made of, in order.
    """

    scores: str
    product: str
    weights: int
    keys: int
    side: int
    within: tuple[str, ...]


def weighing_of(computation: Computation, folds: Sequence[Instruction]) -> Weighing | None:
    """Return how the folds of a computation make attention, if they do."""
    dots = [fold for fold in folds if fold.opcode == "dot"]
    reduces = {fold.name for fold in folds if fold.opcode == "reduce"}
    if len(dots) != 2 or not reduces or len(dots) + len(reduces) != len(folds):
        return None
    scores, product = dots
    waiting = _waiting(computation, scores.name, until=product.name)
    sides = [k for k, name in enumerate(product.operands) if name in waiting]
    if len(sides) != 1 or len(product.operands) != 2:
        return None
    within = _within(computation, product.operands[sides[0]])
    if not reduces <= within or not _is_closed(computation, waiting, within, product.name):
        return None
    if not all(_keeps_index(computation, name, scores, reduces, waiting) for name in waiting):
        return None
    place = _keys(computation, scores, product, sides[0])
    if place is None or not _suits(computation, scores, product):
        return None
    order = tuple(i.name for i in computation.instructions if i.name in within)
    return Weighing(scores.name, product.name, sides[0], *place, order)


def _suits(computation: Computation, scores: Instruction, product: Instruction) -> bool:
    """Tell whether one kernel computes two products, the second from what the first makes."""
    found = []
    for dot in (scores, product):
        lhs, rhs = (_array(computation[name]) for name in dot.operands)
        steps = prod(lhs.dims[d] for d in integers(dot, "lhs_contracting_dims", ()))
        out = _array(dot)
        if not takes_tensor_cores(dot, lhs, rhs) or 2 * out.elements * steps > MOST_FLOPS:
            return False
        found.append(steps)
    deep, keys = found
    outer = prod(_array(scores).dims[: len(integers(scores, "lhs_batch_dims", ()))])
    rows = _array(scores).elements // max(1, keys * outer)
    width = _array(product).elements // max(1, rows * outer)
    return (
        FEWEST_KEYS <= keys <= MOST_KEYS
        and rows >= FEWEST_ROWS
        and 0 < deep <= MOST_STEPS
        and 0 < width <= MOST_STEPS
    )


def _waiting(computation: Computation, first: str, until: str) -> set[str]:
    """Return `first` and what waits for it, but for what waits for `until`."""
    found = {first}
    for instr in computation.instructions:
        if instr.name != until and not found.isdisjoint(instr.operands):
            found.add(instr.name)
        if instr.name == until:
            break
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


def _keeps_index(
    computation: Computation,
    name: str,
    scores: Instruction,
    reduces: set[str],
    waiting: set[str],
) -> bool:
    """Tell whether a value made of scores has their index, or what reduces leave of it."""
    instr, dims = computation[name], _array(scores).dims
    if name == scores.name:
        return True
    if name in reduces:
        first = computation[instr.operands[0]].shape
        return isinstance(first, Shape) and first.dims == dims
    if not isinstance(instr.shape, Shape):
        return False
    of_scores = [o for o in instr.operands if o in waiting and _dims(computation[o]) == dims]
    return not of_scores or (OPS[instr.opcode].elementwise and instr.shape.dims == dims)


def _keys(
    computation: Computation, scores: Instruction, product: Instruction, side: int
) -> tuple[int, int] | None:
    """Return the dimension of the keys, and the operand of the scores that has them."""
    batch = len(integers(scores, "lhs_batch_dims", ()))
    given = _SIDES[side]
    summed = integers(product, f"{given}_contracting_dims", ())
    over = integers(product, f"{given}_batch_dims", ())
    dims = _array(scores).dims
    if len(summed) != 1 or sorted(over) != list(range(batch)):
        return None
    if _array(computation[product.operands[side]]).dims != dims or summed[0] < batch:
        return None
    lhs = _array(computation[scores.operands[0]])
    of_lhs = lhs.rank - batch - len(integers(scores, "lhs_contracting_dims", ()))
    number = int(summed[0] >= batch + of_lhs)
    count = len(dims) - batch - of_lhs if number else of_lhs
    return (summed[0], number) if count == 1 else None


def _dims(instr: Instruction) -> tuple[int, ...] | None:
    return instr.shape.dims if isinstance(instr.shape, Shape) else None


def _array(instr: Instruction) -> Shape:
    assert isinstance(instr.shape, Shape)
    return instr.shape
