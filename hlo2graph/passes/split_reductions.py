"""Fold in two steps what one step would fold with most of the device idle.

In and out: a Module of the same meaning. A reduce of few results has few blocks of threads; where
its input is large, the elements of each result are cut into parts. The first step folds each part,
from the neutral element; the second folds the parts' results, from the real start. What does not
fill a part goes into the second step as it is. Narrow floats are folded in float32 in both steps,
as one step would. Only regions that are one associative operation are taken apart.

The rule, all of it: a reduce is taken apart where that saves GAIN_NS by this reckoning. A block
moves BLOCK_BYTES_EACH_NS, all together at most what memory gives; AT_ONCE large ones run at once,
the last few by themselves. There is a block for each result where the most minor dimension is
folded, else one for each RUN_BYTES of results side by side. A row that one kernel can normalise,
totals and all, is left whole. The first step is given PARTS blocks, or fewer of PART_BYTES, of rows
of ROW_BYTES, cut along the most major dimension that gives as many.

Rows of columns that end within an access take a quarter longer to read, at least. So as many side
by side as end with one are folded as one row, where there are FEWEST_WIDE such rows at least; the
second step brings them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

from hlo2graph.hlo import Instruction, Module, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.folding import UFUNCS
from hlo2graph.ops.large_gpu import MULTIPROCESSORS
from hlo2graph.ops.region import HELD_BYTES, LONGEST_COLUMNS, MOST_COLUMNS
from hlo2graph.ops.scalar_region import binary_reducer
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.figures import BYTES_EACH_NS, LAUNCH_NS
from hlo2graph.passes.rules.values import numbers
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.split_steps import Cut, Regions, Steps, wide_type

GAIN_NS = 4 * LAUNCH_NS  # of which the second step's launch takes one
BLOCK_BYTES_EACH_NS = 40
RUN_BYTES = 128
CLUSTER = 8
AT_ONCE = MULTIPROCESSORS
PARTS = 8 * MULTIPROCESSORS  # at most, so that all run at once
PART_BYTES = 32 << 10  # of a part, at least
ROW_BYTES = 8 << 10  # the same of rows: what is made in the same kernel has no more blocks
ACCESS_BYTES = 16  # that a thread reads at once: parts of rows begin at a multiple
FEWEST_WIDE = 128  # below which a part has too few to be folded by several threads
LYING = frozenset(  # what is in memory, or holds one element, when the reduce begins
    {"parameter", "constant", "get-tuple-element", "dot", "convolution", "fusion", "custom-call"}
)


def split_reductions(module: Module, cluster: int = CLUSTER) -> Module:
    """Return `module` with large reduces of few results taken apart.

    cluster: blocks that may share a row.
    """
    regions = Regions(module)
    effects, stepped = with_effects(module.computations), sequences(module)
    computations = dict(module.computations)
    for name in stepped:
        draft = Draft(module.computations[name], module.computations, effects)
        for instr in module.computations[name].instructions:
            if instr.opcode == "reduce" and instr.name in draft and draft.is_pure(instr):
                _split(draft, instr, regions, cluster)
        computations[name] = draft.done()
    if not regions.made:
        return module
    return replace(module, computations=regions.made | computations)


def _split(draft: Draft, instr: Instruction, regions: Regions, cluster: int) -> None:
    """Take a reduce apart where that pays."""
    if len(instr.operands) != 2 or not isinstance(instr.shape, Shape):
        return
    source = draft.shape(instr.operands[0])
    opcode = binary_reducer(draft.computations, str(instr.attrs["to_apply"]))
    if opcode not in UFUNCS or source.dtype.is_complex or not is_settled(source):
        return
    if instr.shape.dtype is not source.dtype:
        return
    blocks = _blocks(source, numbers(instr))
    beside = _beside(draft, instr, source)
    if not _pays(source, blocks, beside) or _normalises(draft, instr, source, cluster):
        return
    name, shape, reduced = _merged(draft, instr, source)
    blocks *= beside
    least = ROW_BYTES if _is_rows(source, numbers(instr)) else PART_BYTES
    parts = min(PARTS, source.size // least)
    cut = _cut(shape, reduced, max(2, parts // blocks), beside)
    if cut is not None:
        Steps(draft, instr, regions.named(opcode, wide_type(source.dtype)), opcode).write(
            name, shape, reduced, cut
        )


def _is_rows(shape: Shape, reduced: Sequence[int]) -> bool:
    return next((d in reduced for d in shape.minor_to_major if shape.dims[d] > 1), True)


def _blocks(shape: Shape, reduced: Sequence[int]) -> int:
    """Return how many blocks fold in one step."""
    results = prod(n for d, n in enumerate(shape.dims) if d not in reduced)
    return results if _is_rows(shape, reduced) else -(-results * shape.dtype.size // RUN_BYTES)


def _beside(draft: Draft, instr: Instruction, shape: Shape) -> int:
    """Return how many rows side by side begin and end with whole accesses, where one does not.

    One, unless columns are folded whose elements are read where they lie, or computed of such.
    """
    reduced = tuple(sorted(numbers(instr)))
    if reduced != tuple(range(len(reduced))) or not shape.is_row_major or shape.elements == 0:
        return 1
    row = prod(shape.dims[len(reduced) :]) * shape.dtype.size
    if row == shape.dtype.size or not _lies_flat(draft, instr.operands[0]):
        return 1
    beside = ACCESS_BYTES // gcd(row, ACCESS_BYTES)
    return beside if prod(shape.dims[: len(reduced)]) >= FEWEST_WIDE * beside else 1


def _lies_flat(draft: Draft, name: str) -> bool:
    """Tell whether no element is read, or made, by its index."""
    waiting, seen = [name], {name}
    while waiting:
        instr = draft[waiting.pop()]
        if instr.opcode == "broadcast" and not draft.shape(instr.operands[0]).dims:
            continue
        if OPS[instr.opcode].elementwise:
            waiting += [o for o in instr.operands if o not in seen]
            seen.update(instr.operands)
        elif instr.opcode not in LYING:
            return False
    return True


def _pays(shape: Shape, blocks: int, beside: int) -> bool:
    if not blocks:
        return False
    now = shape.size // min(BYTES_EACH_NS, blocks * BLOCK_BYTES_EACH_NS)
    if beside > 1:
        now = now * 5 // 4
    if blocks > AT_ONCE:
        now = now * -(-blocks // AT_ONCE) * AT_ONCE // blocks
    return now - shape.size // BYTES_EACH_NS >= GAIN_NS


def _normalises(draft: Draft, instr: Instruction, source: Shape, cluster: int) -> bool:
    """Tell whether something of the input's size waits for the totals of its short rows.

    Rows that are longer a cluster holds, if they are one array's.
    """
    if not _is_rows(source, numbers(instr)):
        return False
    steps = prod(source.dims[d] for d in numbers(instr))
    if steps > (MOST_COLUMNS if cluster == 1 else LONGEST_COLUMNS):
        return False
    waiting, seen = [instr], {instr.name}
    while waiting:
        for user in draft.users_of(waiting.pop().name):
            small = isinstance(user.shape, Shape) and user.shape.elements < source.elements
            if user.opcode == "broadcast" and not small:
                return steps <= MOST_COLUMNS or _is_one_array(draft, instr, user)
            moves = OPS[user.opcode].elementwise or user.opcode in ("broadcast", "reshape")
            if small and moves and user.name not in seen:
                seen.add(user.name)
                waiting.append(user)
    return False


def _is_one_array(draft: Draft, instr: Instruction, spread: Instruction) -> bool:
    """Tell whether one array is all that is folded, and that waits for the totals `spread` out."""
    full = draft.shape(spread.name).elements
    readers = (user.name for user in draft.users_of(spread.name) if OPS[user.opcode].elementwise)
    waiting, seen, arrays = [instr.operands[0], *readers], {spread.name}, dict[str, Shape]()
    while waiting:
        made = draft[waiting.pop()]
        shape = draft.shape(made.name)
        if made.name in seen or shape.elements < full:
            continue
        seen.add(made.name)
        if OPS[made.opcode].elementwise:
            waiting += made.operands
        elif made.opcode != "broadcast" or 2 * draft.shape(made.operands[0]).elements >= full:
            arrays[made.name] = shape
    return len(arrays) == 1 and all(s.dtype.size <= HELD_BYTES for s in arrays.values())


def _merged(draft: Draft, instr: Instruction, shape: Shape) -> tuple[str, Shape, tuple[int, ...]]:
    """Return the input with its reduced dimensions as one, where they lie side by side."""
    name, reduced = instr.operands[0], tuple(sorted(numbers(instr)))
    first, last = reduced[0], reduced[-1]
    if len(reduced) == 1 or reduced != tuple(range(first, last + 1)) or not shape.is_row_major:
        return name, shape, reduced
    dims = (*shape.dims[:first], prod(shape.dims[d] for d in reduced), *shape.dims[last + 1 :])
    merged = Shape(shape.dtype, dims)
    return draft.add(instr, "reshape", merged, (name,)), merged, (first,)


def _cut(shape: Shape, reduced: Sequence[int], parts: int, beside: int) -> Cut | None:
    """Return how to cut a reduced dimension into about so many parts, the most major one there is.

    So that what a block reads lies together.
    """
    for dim in (d for d in reversed(shape.minor_to_major) if d in reduced):
        count, unit = shape.dims[dim], beside * _unit(shape, dim)
        for exact in range(parts, 2 * parts):
            if count % (exact * unit) == 0 and (exact < count or len(reduced) > 1):
                return Cut(dim, exact, count // exact, 0, beside)
    dim = max(reduced, key=lambda d: shape.dims[d])
    count, unit = shape.dims[dim], beside * _unit(shape, dim)
    size = count // parts // unit * unit if parts > 1 else 0
    return Cut(dim, parts, size, count - parts * size, beside) if size > beside else None


def _unit(shape: Shape, dim: int) -> int:
    """Return of how many elements a part is a multiple."""
    return max(1, ACCESS_BYTES // shape.dtype.size) if _is_rows(shape, (dim,)) else 1
