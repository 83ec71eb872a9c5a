"""Device rules of the operations that move elements: each maps an index to an operand's index."""

from __future__ import annotations

from typing import TypeVar

from hlo2graph.hlo import Instruction, PaddingDim, Shape, SliceDim
from hlo2graph.ops.device import ByLeaf, Element, Expr, Index
from hlo2graph.ops.expect import integer, integers, written

T = TypeVar("T", PaddingDim, SliceDim)


def broadcast(element: Element, instr: Instruction, index: Index) -> Expr:
    """Drop the dimensions that the operand does not have."""
    return element.operand(0, tuple(index[d] for d in integers(instr, "dimensions", ())))


def _same_leaf(element: Element, _: Instruction, leaf: int, index: Index) -> Expr:
    return element.operand(0, index, leaf)


same_index = ByLeaf(_same_leaf)
"""Take the operand's element at the same index, of the same leaf where it is a tuple."""


def transpose(element: Element, instr: Instruction, index: Index) -> Expr:
    """Put each result index where its dimension came from."""
    source = ["0"] * len(index)
    for to, dim in enumerate(integers(instr, "dimensions", ())):
        source[dim] = index[to]
    return element.operand(0, tuple(source))


def reverse(element: Element, instr: Instruction, index: Index) -> Expr:
    """Count the reversed dimensions from their end."""
    shape, turned = element.shape(0), integers(instr, "dimensions")
    return element.operand(
        0,
        tuple(
            element.integer(f"{shape.dims[d] - 1} - {i}") if d in turned else i
            for d, i in enumerate(index)
        ),
    )


def slice_(element: Element, instr: Instruction, index: Index) -> Expr:
    """Step through the operand from the slice's start."""
    parts = _dims(instr, "slice", SliceDim)
    return element.operand(
        0, tuple(_affine(element, i, p.stride, p.start) for i, p in zip(index, parts, strict=True))
    )


def reshape(element: Element, instr: Instruction, index: Index) -> Expr:
    """Find the element of the same row-major number."""
    target, source = written(instr), element.shape(0)
    return element.operand(0, reindex(element, index, target.dims, source.dims))


def bitcast(element: Element, instr: Instruction, index: Index) -> Expr:
    """Find the element of the same place in memory; only between elements of one width."""
    target, source = written(instr), element.shape(0)
    stored = tuple(index[d] for d in reversed(target.minor_to_major))
    here = tuple(target.dims[d] for d in reversed(target.minor_to_major))
    there = tuple(source.dims[d] for d in reversed(source.minor_to_major))
    found = reindex(element, stored, here, there)
    place = dict(zip(reversed(source.minor_to_major), found, strict=True))
    value = element.operand(0, tuple(place[d] for d in range(source.rank)))
    if source.dtype is target.dtype:
        return value
    return element.bind(
        target.dtype, f"hlo::bitcast<hlo::{target.dtype}, hlo::{source.dtype}>({value})"
    )


def reindex(
    element: Element, index: Index, source: tuple[int, ...], target: tuple[int, ...]
) -> Index:
    """Return the index in `target` dims of the element at `index` in `source` dims, row-major.

    Runs of dimensions whose sizes multiply to the same count are matched first, so that an index
    passes through unchanged where the dimensions agree.
    """
    found: list[Expr] = []
    at, groups = 0, _groups(source, target)
    for before, after in groups:
        part = index[at : at + len(before)]
        at += len(before)
        if before == after:
            found += part
            continue
        live = [(i, n) for i, n in zip(part, before, strict=True) if n != 1]
        linear, stride, terms = "0", 1, []
        for i, n in reversed(live):
            terms.append(i if stride == 1 else f"{i} * {stride}")
            stride *= n
        if terms:
            linear = terms[0] if len(terms) == 1 else element.integer(" + ".join(reversed(terms)))
        found += element.split(linear, after)
    return tuple(found)


def _groups(
    source: tuple[int, ...], target: tuple[int, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut two lists of sizes into shortest runs of equal products."""
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    if 0 in source or 0 in target:
        return [(source, target)]
    a = b = start_a = start_b = 0
    while a < len(source) or b < len(target):
        left = right = 1
        while True:
            if a < len(source) and (left <= right or b == len(target)):
                left *= source[a]
                a += 1
            elif b < len(target):
                right *= target[b]
                b += 1
            if left == right and (a > start_a or b > start_b):
                break
        groups.append((source[start_a:a], target[start_b:b]))
        start_a, start_b = a, b
    return groups


def pad(element: Element, instr: Instruction, index: Index) -> Expr:
    """Return the operand's element where one lies there, else the padding value."""
    target = written(instr)
    result = element.variable(target.dtype, element.operand(1))
    tests, source = padded(element, instr, index)
    with element.block(f"if ({' && '.join(tests) or 'true'})"):
        element.line(f"{result} = {element.operand(0, source)};")
    return result


def chosen_pad(element: Element, instr: Instruction, index: Index) -> Expr:
    """Choose between the padding value and an element of the operand, which there must be.

    The element is read in any case, and is a near one where none lies there.
    """
    tests, source = padded(element, instr, index)
    near = []
    for place, size in zip(source, element.shape(0).dims, strict=True):
        high = f"{place} < {size}"
        found = f"{high} ? {place} : {size - 1}" if high in tests else place
        near.append(element.integer(f"{place} < 0 ? 0 : {found}" if high in tests else found))
    value = element.operand(0, tuple(near))
    if not tests:
        return value
    chosen = f"{' && '.join(tests)} ? {value} : {element.operand(1)}"
    return element.bind(written(instr).dtype, chosen)


def padded(element: Element, instr: Instruction, index: Index) -> tuple[list[Expr], Index]:
    """Return the tests for an element of the operand to lie at `index`, and where it lies."""
    tests, source = [], []
    parts = _dims(instr, "padding", PaddingDim)
    for i, size, part in zip(index, element.shape(0).dims, parts, strict=True):
        step = part.interior + 1
        shifted = _affine(element, i, 1, -part.low)
        place = shifted if step == 1 else element.integer(f"{shifted} / {step}")
        if part.low > 0:
            tests.append(f"{shifted} >= 0")
        if step > 1:
            tests.append(f"{shifted} % {step} == 0")
        if part.low > 0 or part.high > 0 or step > 1:
            tests.append(f"{place} < {size}")
        source.append(place)
    return tests, tuple(source)


def concatenate(element: Element, instr: Instruction, index: Index) -> Expr:
    """Find the operand that holds this index, from the last to the first."""
    along, target = integers(instr, "dimensions")[0], written(instr)
    starts, start = [], 0
    for k in range(len(instr.operands)):
        starts.append(start)
        start += element.shape(k).dims[along]
    result = element.variable(target.dtype, "{}")
    for k, start in enumerate(starts):
        end = start + element.shape(k).dims[along]
        head = f"if ({index[along]} < {end})" if k + 1 < len(starts) else ""
        with element.block(f"else {head}".strip() if k else head or "if (true)"):
            place = _affine(element, index[along], 1, -start)
            inner = (*index[:along], place, *index[along + 1 :])
            element.line(f"{result} = {element.operand(k, inner)};")
    return result


def iota(element: Element, instr: Instruction, index: Index) -> Expr:
    """Convert the index along one dimension."""
    target = written(instr)
    count = f"(hlo::s64){index[integer(instr, 'iota_dimension')]}"
    return element.bind(target.dtype, f"hlo::convert<hlo::{target.dtype}>({count})")


def gather(element: Element, instr: Instruction, index: Index) -> Expr:
    """Read the start indices, clamp them, and take the element at the offset inside the slice."""
    operand, starts = element.shape(0), element.shape(1)
    offsets, sizes = integers(instr, "offset_dims"), integers(instr, "slice_sizes")
    start_map, vector = integers(instr, "start_index_map"), integer(instr, "index_vector_dim")
    dropped = {*integers(instr, "collapsed_slice_dims", ())}
    batching = integers(instr, "operand_batching_dims", ())
    batched = integers(instr, "start_indices_batching_dims", ())
    batch = [i for d, i in enumerate(index) if d not in offsets]
    window = iter(index[d] for d in offsets)
    place: list[Expr] = [
        "0" if d in dropped or d in batching else next(window) for d in range(operand.rank)
    ]
    for k, dim in enumerate(start_map):
        at = (*batch[:vector], str(k), *batch[vector:]) if vector < starts.rank else tuple(batch)
        last = operand.dims[dim] - sizes[dim]
        if last:
            start = f"hlo::clamped_index({element.operand(1, at)}, {wide(last)})"
            start = element.integer(start)
            place[dim] = start if place[dim] == "0" else element.integer(f"{start} + {place[dim]}")
    for dim, source in zip(batching, batched, strict=True):
        place[dim] = batch[source - (source > vector)]
    return element.operand(0, tuple(place))


def dynamic_slice(element: Element, instr: Instruction, index: Index) -> Expr:
    """Start at indices read and clamped here, so that the slice stays inside."""
    starts = clamped(element, 1, element.shape(0), written(instr).dims)
    return element.operand(
        0, tuple(element.integer(f"{s} + {i}") for s, i in zip(starts, index, strict=True))
    )


def dynamic_update_slice(element: Element, instr: Instruction, index: Index) -> Expr:
    """Return the update's element inside the slice, the operand's outside."""
    update = element.shape(1)
    starts = clamped(element, 2, element.shape(0), update.dims)
    inner = [element.integer(f"{i} - {s}") for i, s in zip(index, starts, strict=True)]
    tests = [f"{i} >= 0 && {i} < {n}" for i, n in zip(inner, update.dims, strict=True)]
    result = element.variable(written(instr).dtype, "{}")
    with element.block(f"if ({' && '.join(tests) or 'true'})"):
        element.line(f"{result} = {element.operand(1, tuple(inner))};")
    with element.block("else"):
        element.line(f"{result} = {element.operand(0, index)};")
    return result


def clamped(element: Element, first: int, shape: Shape, sizes: tuple[int, ...]) -> list[Expr]:
    """Return the start indices, operands `first` on, clamped so that `sizes` fit in `shape`."""
    starts = []
    for dim, (whole, size) in enumerate(zip(shape.dims, sizes, strict=True)):
        last = whole - size
        if not last:
            starts.append("0")
            continue
        vector = element.shape(first).rank == 1  # the older form: all starts in one operand
        start = element.operand(first, (str(dim),)) if vector else element.operand(first + dim)
        starts.append(element.integer(f"hlo::clamped_index({start}, {wide(last)})"))
    return starts


def wide(number: int) -> str:
    """Return a C++ literal, of 64 bits where it needs them."""
    return str(number) if abs(number) < 2**31 else f"{number}ll"


def _affine(element: Element, index: Expr, scale: int, offset: int) -> Expr:
    scaled = index if scale == 1 else f"{index} * {scale}"
    if offset:
        scaled = f"{scaled} {'+' if offset > 0 else '-'} {abs(offset)}"
    return index if scaled == index else element.integer(scaled)


def _dims(instr: Instruction, attr: str, kind: type[T]) -> tuple[T, ...]:
    value = instr.attrs.get(attr, ())
    dims = value if isinstance(value, tuple) else ()
    return tuple(dim for dim in dims if isinstance(dim, kind))


def get_dimension_size(element: Element, instr: Instruction, _: Index) -> Expr:
    """Return the size, which is known: arrays of sizes known at run time only are refused."""
    (dim,) = integers(instr, "dimensions")
    return element.bind(written(instr).dtype, str(element.shape(0).dims[dim]))
