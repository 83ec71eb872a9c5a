"""Device rules of conversions, comparisons, and of everything that loops: reduce, dot, windows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from hlo2graph.hlo import DTYPES, DimLabels, DType, Instruction, Window, WindowDim
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.expect import integer, integers, written

_SIGNS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}


def compare(element: Element, instr: Instruction, index: Index) -> Expr:
    """Compare two elements, by total order where the type asks for it."""
    a, b = (element.operand(k, index) for k in (0, 1))
    if instr.attrs.get("type") == "TOTALORDER":
        a, b = f"hlo::total_order({a})", f"hlo::total_order({b})"
    return element.bind(written(instr).dtype, f"{a} {_SIGNS[str(instr.attrs['direction'])]} {b}")


def select(element: Element, instr: Instruction, index: Index) -> Expr:
    """Compute only the side that is taken."""
    chosen = element.operand(0, index if element.shape(0).rank else ())
    result = element.variable(written(instr).dtype, "{}")
    with element.block(f"if ({chosen})"):
        element.line(f"{result} = {element.operand(1, index)};")
    with element.block("else"):
        element.line(f"{result} = {element.operand(2, index)};")
    return result


def convert(element: Element, instr: Instruction, index: Index) -> Expr:
    """Convert as HLO does: saturating, rounding to nearest even."""
    target = written(instr).dtype
    return element.bind(target, f"hlo::convert<hlo::{target}>({element.operand(0, index)})")


def bitcast_convert(element: Element, instr: Instruction, index: Index) -> Expr:
    """Reinterpret bits; a dimension of parts appears or vanishes where the widths differ."""
    source, target = element.shape(0).dtype, written(instr).dtype
    if source.size == target.size:
        value = element.operand(0, index)
        return element.bind(target, f"hlo::bitcast<hlo::{target}, hlo::{source}>({value})")
    if source.size > target.size:
        value = element.operand(0, index[:-1])
        part = f"hlo::part<hlo::{target}, hlo::{source}>({value}, {index[-1]})"
        return element.bind(target, part)
    parts = element.shape(0).dims[-1]
    values = [element.operand(0, (*index, str(k))) for k in range(parts)]
    whole = f"hlo::joined<hlo::{target}, hlo::{source}>({', '.join(values)})"
    return element.bind(target, whole)


def reduce_precision(element: Element, instr: Instruction, index: Index) -> Expr:
    """Keep the bits asked for."""
    kept = f"{integer(instr, 'exponent_bits')}, {integer(instr, 'mantissa_bits')}"
    dtype = written(instr).dtype
    return element.bind(dtype, f"hlo::reduce_precision<{kept}>({element.operand(0, index)})")


def map_(element: Element, instr: Instruction, index: Index) -> Expr:
    """Apply the region to the elements at this index."""
    arguments = [element.operand(k, index) for k in range(len(instr.operands))]
    (found,) = element.call(str(instr.attrs["to_apply"]), arguments)
    return found


def reduce(element: Element, instr: Instruction, index: Index) -> tuple[Expr, ...]:
    """Fold the region along the reduced dimensions, in row-major order."""
    count = len(instr.operands) // 2
    shape, dims = element.shape(0), sorted(integers(instr, "dimensions"))
    totals = _totals(element, instr, count)
    with _loops(element, [shape.dims[d] for d in dims]) as steps:
        inner = iter(index)
        along = dict(zip(dims, steps, strict=True))
        source = tuple(along[d] if d in along else next(inner) for d in range(shape.rank))
        values = [element.operand(k, source) for k in range(count)]
        _fold(element, instr, totals, values)
    return tuple(totals)


def reduce_window(element: Element, instr: Instruction, index: Index) -> tuple[Expr, ...]:
    """Fold the region over the window's elements that lie inside the operand."""
    count = len(instr.operands) // 2
    shape, window = element.shape(0), _window(instr)
    totals = _totals(element, instr, count)
    with _loops(element, [w.size for w in window]) as steps:
        places, tests = _window_places(element, index, steps, window, shape.dims)
        with element.block(f"if ({' && '.join(tests) or 'true'})"):
            values = [element.operand(k, places) for k in range(count)]
            _fold(element, instr, totals, values)
    return tuple(totals)


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
            start = f"hlo::clamped_index({element.operand(1, at)}, {last})"
            start = element.integer(start)
            place[dim] = start if place[dim] == "0" else element.integer(f"{start} + {place[dim]}")
    for dim, source in zip(batching, batched, strict=True):
        place[dim] = batch[source - (source > vector)]
    return element.operand(0, tuple(place))


def dot(element: Element, instr: Instruction, index: Index) -> Expr:
    """Sum products along the contracting dimensions."""
    lhs, rhs, target = element.shape(0), element.shape(1), written(instr)
    batch = (integers(instr, "lhs_batch_dims", ()), integers(instr, "rhs_batch_dims", ()))
    contract = (
        integers(instr, "lhs_contracting_dims", ()),
        integers(instr, "rhs_contracting_dims", ()),
    )
    wide = accumulator(target.dtype)
    total = element.variable(wide, "{}")
    with _loops(element, [lhs.dims[d] for d in contract[0]]) as steps:
        rest = iter(index[len(batch[0]) :])
        sides = []
        for side, shape in enumerate((lhs, rhs)):
            fixed = dict(zip(batch[side], index, strict=False))
            fixed |= dict(zip(contract[side], steps, strict=True))
            place = tuple(fixed[d] if d in fixed else next(rest) for d in range(shape.rank))
            value = element.operand(side, place)
            sides.append(element.bind(wide, f"hlo::convert<hlo::{wide}>({value})"))
        element.line(f"{total} = hlo::add({total}, hlo::multiply({sides[0]}, {sides[1]}));")
    return narrowed(element, total, target.dtype)


def convolution(element: Element, instr: Instruction, index: Index) -> Expr:
    """Sum products over the kernel's window and input features."""
    labels = instr.attrs["dim_labels"]
    assert isinstance(labels, DimLabels)
    lhs, rhs, target = element.shape(0), element.shape(1), written(instr)
    window, wide = _window(instr), accumulator(target.dtype)
    groups = integer(instr, "feature_group_count", 1)
    batches = integer(instr, "batch_group_count", 1)
    features = rhs.dims[labels.rhs.index("i")]
    outputs = rhs.dims[labels.rhs.index("o")]
    batch, feature = index[labels.out.index("b")], index[labels.out.index("f")]
    spatial = tuple(index[labels.out.index(str(d))] for d in range(len(window)))
    total = element.variable(wide, "{}")
    sizes = [*(w.size for w in window), features]
    with _loops(element, sizes) as steps:
        sources = [lhs.dims[labels.lhs.index(str(d))] for d in range(len(window))]
        places, tests = _window_places(element, spatial, steps[:-1], window, tuple(sources))
        with element.block(f"if ({' && '.join(tests) or 'true'})"):
            source_feature, source_batch = steps[-1], batch
            if groups > 1:
                group = f"{feature} / {outputs // groups} * {features}"
                source_feature = element.integer(f"{group} + {steps[-1]}")
            if batches > 1:
                size = lhs.dims[labels.lhs.index("b")] // batches
                group = f"{feature} / {outputs // batches} * {size}"
                source_batch = element.integer(f"{group} + {batch}")
            taps = [
                f"{w.size - 1} - {s}" if w.reversal else s
                for w, s in zip(window, steps, strict=False)
            ]
            parts_lhs = {"b": source_batch, "f": source_feature}
            parts_rhs = {"i": steps[-1], "o": feature}
            for d, (place, tap) in enumerate(zip(places, taps, strict=True)):
                parts_lhs[str(d)] = place
                parts_rhs[str(d)] = element.integer(tap)
            a = element.operand(0, tuple(parts_lhs[c] for c in labels.lhs))
            b = element.operand(1, tuple(parts_rhs[c] for c in labels.rhs))
            product = (
                f"hlo::multiply(hlo::convert<hlo::{wide}>({a}), hlo::convert<hlo::{wide}>({b}))"
            )
            element.line(f"{total} = hlo::add({total}, {product});")
    return narrowed(element, total, target.dtype)


def accumulator(dtype: DType) -> DType:
    """Return the dtype that sums of products are kept in."""
    if dtype.is_float and dtype.bits < 32:
        return DTYPES["f32"]
    if dtype.is_integer and dtype.bits < 32:
        return DTYPES["s32" if dtype.name.startswith("s") else "u32"]
    return dtype


def narrowed(element: Element, value: Expr, dtype: DType) -> Expr:
    """Return a sum as the result's dtype has it."""
    if accumulator(dtype) is dtype:
        return value
    return element.bind(dtype, f"hlo::convert<hlo::{dtype}>({value})")


def _totals(element: Element, instr: Instruction, count: int) -> list[Expr]:
    """Declare the running results, from the init values."""
    leaves = tuple(instr.shape.leaves())
    return [
        element.variable(leaf.dtype, element.operand(count + k)) for k, leaf in enumerate(leaves)
    ]


def _fold(
    element: Element, instr: Instruction, totals: Sequence[Expr], values: Sequence[Expr]
) -> None:
    found = element.call(str(instr.attrs["to_apply"]), (*totals, *values))
    if len(totals) > 1:  # all results before any total changes
        leaves = tuple(instr.shape.leaves())
        found = tuple(element.bind(s.dtype, f) for s, f in zip(leaves, found, strict=True))
    for total, value in zip(totals, found, strict=True):
        element.line(f"{total} = {value};")


def _window(instr: Instruction) -> tuple[WindowDim, ...]:
    held = instr.attrs.get("window")
    return held.dims if isinstance(held, Window) else ()


def _window_places(
    element: Element,
    index: Sequence[Expr],
    steps: Sequence[Expr],
    window: Sequence[WindowDim],
    sizes: Sequence[int],
) -> tuple[Index, list[str]]:
    """Return where each window element lies in the operand, and the tests that it lies inside."""
    places, tests = [], []
    for i, step, w, size in zip(index, steps, window, sizes, strict=True):
        moved = f"{i} * {w.stride} + {step} * {w.rhs_dilate} - ({w.pad_low})"
        place = element.integer(moved)
        if w.lhs_dilate > 1:
            tests.append(f"{place} % {w.lhs_dilate} == 0")
            tests.append(f"{place} >= 0")
            place = element.integer(f"{place} / {w.lhs_dilate}")
        else:
            tests.append(f"{place} >= 0")
        tests.append(f"{place} < {size}")
        places.append(place)
    return tuple(places), tests


class _loops(ExitStack):
    """Nested counting loops; entering yields their counters."""

    def __init__(self, element: Element, sizes: Sequence[int]) -> None:
        super().__init__()
        self._element, self._sizes = element, sizes

    def __enter__(self) -> list[Expr]:  # type: ignore[override]
        super().__enter__()
        steps = []
        for size in self._sizes:
            name = self._element.fresh("n")
            head = f"for (int {name} = 0; {name} < {size}; ++{name})"
            self.enter_context(self._element.block(head))
            steps.append(name)
        return steps
