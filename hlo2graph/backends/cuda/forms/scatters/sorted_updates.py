"""The scatter form of updates that come in the order of what they update: rows, or elements.

Each thread makes an element of the result: it looks for its updates and folds them in their order.
Of rows as long as a warp, or longer, a warp makes one, or a part: its lanes look for the updates
together, and have read by then what these are folded into, unless that may stay as it lies.
Where an element has many, a warp does: each lane folds some that follow each other, then neighbours
are folded, which takes a region that is associative. Where a row has many, so do a block's warps.
Of updates that stand folded in chunks (ops/folded_chunks.py), only the first of each whole chunk of
an element is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, scalar_literal, stored
from hlo2graph.backends.cuda.forms.scatters.updates import Updates
from hlo2graph.backends.cuda.source import ACCESS_BYTES, KernelSource, blocks_for
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.folded_chunks import chunk_of
from hlo2graph.ops.folding import neutral_of
from hlo2graph.ops.free_scatter import parts_opcode

THREADS = 256
WARPS = THREADS // WARP
MOST_EACH = 8  # elements of a row that a thread makes
AT_ONCE = 8  # elements of updates that a thread reads at once
MANY_ROWS = 2112  # from which on a warp each fills the device
MANY = 16  # updates of an element, on average, from which on a warp folds them
MANY_OF_ROW = 64  # updates of a row, on average, from which on a block folds them


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of the result, by its number and index, and a test of whether it is stored."""

    number: Expr
    place: Index
    stores: str = ""


def sorted_kernel(updates: Updates) -> KernelSource:
    """Return the kernel of a scatter whose updates stand side by side."""
    row = _row_size(updates)
    if _is_for_blocks(updates, row):
        return _by_blocks(updates, row)
    if row >= WARP:
        return _by_rows(updates, row)
    emit, count = updates.emit, updates.result.elements
    by_warp = _is_for_warps(updates)
    threads = count * WARP if by_warp else count
    share = f" / {WARP}" if by_warp else ""
    number = emit.integer(f"({emit.block_index} * {THREADS} + threadIdx.x){share}")
    with emit.block(f"if ({number} < {count})"):
        place = emit.element_at(number, updates.result)
        _search(updates, place, by_warp=by_warp)
        if updates.all_inplace:  # what has no updates stays as it is
            emit.line("if (low == high) return;")
        if by_warp:
            _fold_by_warp(updates, place, number)
        else:
            elements, held = [_Element(number, place)], [_held(updates, place)]
            _fold(updates, elements, held)
            _store(updates, elements, held)
    return updates.form.source(emit, blocks_for(threads, THREADS)[0], THREADS)


def _row_size(updates: Updates) -> int:
    """Return how many elements lie side by side that have the same updates."""
    size = 1
    for dim in updates.result.minor_to_major:
        if dim in updates.mapped:
            break
        size *= updates.result.dims[dim]
    rows = prod(updates.result.dims[dim] for dim in updates.mapped)
    return size if size * rows == updates.result.elements else 1


def _by_rows(updates: Updates, size: int) -> KernelSource:
    """Let a warp make each row, or a part of it as large as its lanes have at once."""
    emit = updates.emit
    rows, parts, each = _parts(updates, size)
    warp = emit.integer(f"({emit.block_index} * {THREADS} + threadIdx.x) / {WARP}")
    with emit.block(f"if ({warp} < {rows * parts})"):
        number, part = emit.split(warp, (rows, parts))
        first = emit.integer(f"{number} * {size}")
        elements = _of_lane(updates, size, each, first, part)
        held = [] if updates.all_inplace else [_held(updates, e.place) for e in elements]
        _search(updates, emit.element_at(first, updates.result), by_warp=True)
        if updates.all_inplace:
            emit.line("if (low == high) return;")
            held = [_held(updates, e.place) for e in elements]
        _fold(updates, elements, held)
        _store(updates, elements, held)
    blocks, _, _ = blocks_for(rows * parts * WARP, THREADS)
    return updates.form.source(emit, blocks, THREADS, wide=True)


def _by_blocks(updates: Updates, size: int) -> KernelSource:
    """The same by a block, each warp of which folds some updates that follow each other."""
    emit, dtype, index = updates.emit, updates.result.dtype, updates.emit.index_type
    rows, parts, each = _parts(updates, size)
    number, part = emit.split(emit.block_index, (rows, parts))
    first = emit.integer(f"{number} * {size}")
    elements = _of_lane(updates, size, each, first, part)
    _search(updates, emit.element_at(first, updates.result), by_warp=True)
    if updates.all_inplace:
        emit.line("if (low == high) return;")
    emit.line(f"const int warp = threadIdx.x / {WARP}, lane = threadIdx.x % {WARP};")
    emit.line(f"const {index} share = (looks.count + {WARPS - 1}) / {WARPS};")
    emit.line(f"const {index} begin = warp * share;")
    emit.line(f"const {index} end = begin + share < looks.count ? begin + share : looks.count;")
    opcode = parts_opcode(updates.form.instr, updates.form.computations)
    assert opcode is not None
    neutral = scalar_literal(dtype, neutral_of(opcode, dtype))
    values = [emit.variable(dtype, neutral) for _ in elements]
    _fold(updates, elements, [[v] for v in values], ("begin", "end"))
    emit.line(f"__shared__ {compute_type(dtype)} folded[{WARPS}][{each}][{WARP}];")
    for k, value in enumerate(values):
        emit.line(f"folded[warp][{k}][lane] = {value};")
    emit.line("__syncthreads();")
    with emit.block("if (warp == 0)"):
        held = [_held(updates, e.place) for e in elements]
        emit.line("#pragma unroll")
        with emit.block(f"for (int other = 0; other < {WARPS}; ++other)"):
            for k, (value,) in enumerate(held):
                (found,) = updates.folded([value], [f"folded[other][{k}][lane]"])
                emit.line(f"{value} = {found};")
        _store(updates, elements, held)
    return updates.form.source(emit, rows * parts, THREADS, wide=True)


def _parts(updates: Updates, size: int) -> tuple[int, int, int]:
    """Return how many rows there are, parts of each, and elements of a part for each lane."""
    rows, widths = updates.result.elements // size, -(-size // WARP)
    each = min(MOST_EACH, widths) if rows >= MANY_ROWS else 1
    return rows, -(-widths // each), each


def _is_for_blocks(updates: Updates, size: int) -> bool:
    """Tell whether rows have so many updates that the warps of a block share those of each."""
    rows, form = updates.result.elements // size, updates.form
    many = size > 1 and updates.updates >= MANY_OF_ROW * rows
    return many and parts_opcode(form.instr, form.computations) is not None


def _of_lane(updates: Updates, size: int, each: int, first: Expr, part: Expr) -> list[_Element]:
    """Return a lane's elements of part of a row: in whole accesses, where these fill the part."""
    emit, result = updates.emit, updates.result
    is_whole = size % (each * WARP) == 0
    run = min(each, ACCESS_BYTES // result.dtype.size) if is_whole else 1
    run = run if each % run == 0 else 1
    begin = emit.integer(f"{part} * {each * WARP} + threadIdx.x % {WARP} * {run}")
    row = emit.element_at(first, result)
    inner = [d for d in reversed(result.minor_to_major) if d not in updates.mapped]
    elements = []
    for k in range(each):
        within = emit.integer(f"{begin} + {k // run * run * WARP + k % run}")
        test = "" if is_whole else f"if ({within} < {size})"
        at = within if is_whole else emit.integer(f"{within} < {size} ? {within} : {size - 1}")
        there = dict(zip(inner, emit.split(at, [result.dims[d] for d in inner]), strict=True))
        place = tuple(there.get(d, row[d]) for d in range(result.rank))
        elements.append(_Element(emit.integer(f"{first} + {at}"), place, test))
    return elements


def _is_for_warps(updates: Updates) -> bool:
    form = updates.form
    many = updates.updates >= MANY * updates.result.elements
    apart = parts_opcode(form.instr, form.computations) is not None
    return many and updates.window == 1 and apart


def _search(updates: Updates, place: Index, *, by_warp: bool) -> None:
    """Declare `low` and `high`: the updates between them are of the row of `place`."""
    emit, index = updates.emit, updates.emit.index_type
    for name, sign in (("is_low", "<"), ("is_high", "<=")):
        with emit.block(f"const auto {name} = [&]({index} at) -> bool", ";"):
            starts = updates.starts(list(emit.split("at", updates.batch)))
            emit.line(f"return {_before(updates, starts, place, sign)};")
    emit.line(f"{index} low, high;")
    search = "range_by_warp" if by_warp else "range_of"
    emit.line(f"hlo::{search}<{index}>({updates.updates}, is_low, is_high, low, high);")
    chunk = chunk_of(updates.form.instr)
    kind = f"ChunkLooks<{index}, {chunk}>" if chunk else f"Looks<{index}>"
    emit.line(f"const hlo::{kind} looks(low, high);")


def _before(updates: Updates, starts: dict[int, Expr], place: Index, sign: str) -> Expr:
    """Return C++ that tells whether an index vector is before that of an element's row.

    They are in order as indices into the operand, whatever order their components have.
    """
    *firsts, last = [(starts[dim], place[dim]) for dim in sorted(updates.mapped)]
    found = f"{last[0]} {sign} {last[1]}"
    for start, at in reversed(firsts):
        found = f"{start} < {at} || ({start} == {at} && ({found}))"
    return found


def _held(updates: Updates, place: Index) -> list[Expr]:
    """Declare what an element has before any update."""
    emit, form = updates.emit, updates.form
    return [
        emit.variable(leaf.dtype, emit.leaf(name, 0, place))
        for leaf, name in zip(form.results, form.instr.operands, strict=False)
    ]


def _fold(
    updates: Updates,
    elements: Sequence[_Element],
    of_each: Sequence[Sequence[Expr]],
    between: tuple[Expr, Expr] = ("0", "looks.count"),
) -> None:
    """Fold the updates of elements that have the same ones, in their order."""
    emit, form = updates.emit, updates.form
    emit.line(f"#pragma unroll {max(4, AT_ONCE // len(elements))}")
    begin, end = between
    with emit.block(f"for ({emit.index_type} which = {begin}; which < {end}; ++which)"):
        emit.line(f"const {emit.index_type} at = looks.at(which);")
        for element, values in zip(elements, of_each, strict=True):
            inside = _inside(updates, element.place)
            with emit.block(f"if ({' && '.join(inside)})" if inside else ""):
                found = updates.folded(list(values), _given(updates, element.place, "at"))
                held = [emit.bind(s.dtype, v) for s, v in zip(form.results, found, strict=True)]
                for variable, value in zip(values, held, strict=True):
                    emit.line(f"{variable} = {value};")


def _store(
    updates: Updates, elements: Sequence[_Element], of_each: Sequence[Sequence[Expr]]
) -> None:
    """Store what elements have become."""
    emit, form = updates.emit, updates.form
    kept = [
        [_stored(updates, leaf, x) for leaf, x in zip(form.results, values, strict=True)]
        for values in of_each
    ]
    for element, values in zip(elements, kept, strict=True):
        with emit.block(element.stores):
            for k, (at, x) in enumerate(zip(updates.places(element.number), values, strict=True)):
                emit.line(f"r{k}[{at}] = {x};")


def _stored(updates: Updates, leaf: Shape, value: Expr) -> Expr:
    """Declare a value as it lies in memory, so that neighbours are stored one behind the other."""
    name = updates.emit.fresh("stored")
    updates.emit.line(f"const auto {name} = {stored(leaf.dtype, value)};")
    return name


def _fold_by_warp(updates: Updates, place: Index, number: Expr) -> None:
    """Fold some of an element's updates in each lane, then what the lanes have."""
    emit, dtype, index = updates.emit, updates.form.results[0].dtype, updates.emit.index_type
    emit.line(f"const int lane = threadIdx.x % {WARP};")
    emit.line(f"const {index} each = (looks.count + {WARP - 1}) / {WARP};")
    emit.line(f"const {index} begin = lane * each;")
    emit.line(f"const {index} end = begin + each < looks.count ? begin + each : looks.count;")
    emit.line("bool any = begin < end;")
    value = emit.variable(dtype, "{}")
    with emit.block("if (any)"):
        emit.line(f"{value} = {_given(updates, place, 'looks.at(begin)')[0]};")
    emit.line("#pragma unroll 4")
    with emit.block(f"for ({index} which = begin + 1; which < end; ++which)"):
        emit.line(f"const {index} at = looks.at(which);")
        (found,) = updates.folded([value], _given(updates, place, "at"))
        emit.line(f"{value} = {found};")
    with emit.block(f"for (int delta = 1; delta < {WARP}; delta *= 2)"):
        other = emit.bind(dtype, f"hlo::shuffle_down({value}, delta)")
        emit.line("const bool is_any = hlo::shuffle_down(any, delta);")
        with emit.block(f"if (is_any && lane % (2 * delta) == 0 && lane + delta < {WARP})"):
            (found,) = updates.folded([value], [other])
            emit.line(f"{value} = any ? {found} : {other};")
            emit.line("any = true;")
    with emit.block("if (lane == 0)"):
        held = emit.leaf(updates.form.instr.operands[0], 0, place)
        (found,) = updates.folded([held], [value])
        updates.store(updates.places(number), [f"(any ? {found} : {held})"])


def _inside(updates: Updates, place: Index) -> list[Expr]:
    """Return what holds for elements of a row that windows reach."""
    kept = dict(zip(updates.kept, updates.sizes, strict=True))
    narrow = [d for d in kept if d not in updates.mapped and kept[d] < updates.operand.dims[d]]
    return [f"{place[d]} < {kept[d]}" for d in narrow]


def _given(updates: Updates, place: Index, at: Expr) -> list[Expr]:
    """Return an update of an element, number `at` of all."""
    kept = zip(updates.kept, updates.sizes, strict=True)
    inner = tuple("0" if size == 1 else place[dim] for dim, size in kept)
    return updates.given(updates.emit.split(at, updates.batch), inner)
