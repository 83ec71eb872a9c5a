"""The transpose form where rows of few elements become as few long ones: a thread takes all.

Neighbouring threads of a loop would come to the rest of what memory gives them at once only long
after. Here a thread takes all few elements of one place along the results, or of some places side
by side, so that what it writes fills words. The other way round, where few long rows become rows
of few elements, what a loop reads shares its cache lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.transposes.grain import FEWEST, Across, Order
from hlo2graph.backends.cuda.lanes import Lanes
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.backends.cuda.widen import MOST_LINES, MOST_VALUES, THREADS, most_alive
from hlo2graph.hlo import Computation, Shape
from hlo2graph.ops.device import Index

WORD = 4  # bytes side by side that a thread accesses of each of the few rows
WIDER = 8  # the same where they are so few that a thread would wait for little
VERY_FEW = 4


def thin_kernel(
    across: Across,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
) -> KernelSource | None:
    """Return the kernel; None where there are few threads, or few neighbours, or much text."""
    dims, results = signature.results[0].dims, signature.results
    few, many = across.across, across.along
    if prod(dims[d] for d in few) >= FEWEST:
        return None
    cuts = [next(computation[cut].shape.leaves()) for cut in across.cuts]
    lanes = _lanes(dims, few, many, [*results, *cuts])
    outer = (*across.rest, *many)
    count = prod(dims[d] for d in outer) // lanes
    fewest = signature.device.multiprocessors * THREADS
    if prod(dims[d] for d in many) < WARP * lanes or count < fewest:
        return None
    emit = ElementEmitter(computations, signature.index_type)
    emit.line(f"const {emit.index_type} thread = {emit.block_index} * {THREADS} + threadIdx.x;")
    emit.enter(computation)
    with emit.block(f"if (thread < {count})"):
        emit.line(f"const {emit.index_type} first = thread * {lanes};")
        mark = len(emit.lines)
        place = dict(zip(outer, emit.split("first", [dims[d] for d in outer]), strict=True))
        rows = range(prod(dims[d] for d in few))
        _write(emit, computation, results, [_at(place, few, dims, row) for row in rows])
        body = emit.places.needed(emit.lines[mark:])
        emit.lines[mark:] = Lanes(body, "first", lanes).lines if lanes > 1 else body
    emit.leave()
    lines = emit.needed_lines()
    if len(lines) > MOST_LINES or most_alive(lines) > MOST_VALUES:
        return None
    text = signature.declare(lines, THREADS, wide=True)
    return KernelSource(signature.name, text, blocks_for(count, THREADS), THREADS)


def _lanes(dims: Sequence[int], few: Order, many: Order, arrays: Sequence[Shape]) -> int:
    """Return how many places a thread takes, side by side in memory."""
    rows = prod(dims[d] for d in few)
    word = WIDER if rows <= VERY_FEW else WORD
    found = max(1, word // max(shape.dtype.size for shape in arrays))
    while dims[many[-1]] % found:
        found //= 2
    return found


def _at(place: Mapping[int, str], few: Order, dims: Sequence[int], number: int) -> Index:
    """Return the index of element `number` of the few at a place of the others."""
    found = dict.fromkeys(range(len(dims)), "0") | dict(place)
    for dim in reversed(few):
        number, rest = divmod(number, dims[dim])
        found[dim] = str(rest)
    return tuple(found[d] for d in range(len(dims)))


def _write(
    emit: ElementEmitter,
    computation: Computation,
    results: Sequence[Shape],
    places: Sequence[Index],
) -> None:
    """Compute the results at some places, then store them all."""
    values = [
        [
            emit.stored(leaf.dtype, emit.leaf(computation.root, number, place))
            for number, leaf in enumerate(results)
        ]
        for place in places
    ]
    for number, leaf in enumerate(results):
        for place, found in zip(places, values, strict=True):
            emit.line(f"r{number}[{emit.offset(leaf, place)}] = {found[number]};")
