"""Device rules of sums of products: dot, ragged-dot, convolution."""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.hlo import DTYPES, DimLabels, DType, Instruction
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.device_folds import loops, window_dims, window_places
from hlo2graph.ops.expect import integer, integers, written


def dot(element: Element, instr: Instruction, index: Index) -> Expr:
    """Sum products along the contracting dimensions."""
    parts = DotParts(element, instr)
    total = element.variable(parts.wide, "{}")
    with loops(element, parts.steps) as steps:
        parts.add(element, total, parts.places(index, steps))
    return narrowed(element, total, parts.wide, written(instr).dtype)


class DotParts:
    """Which dimensions of a dot's operands are batch, contracting and free."""

    def __init__(self, element: Element, instr: Instruction) -> None:
        self.shapes = (element.shape(0), element.shape(1))
        self.wide = accumulator(written(instr).dtype, *(s.dtype for s in self.shapes))
        self.batch = (integers(instr, "lhs_batch_dims", ()), integers(instr, "rhs_batch_dims", ()))
        self.contract = (
            integers(instr, "lhs_contracting_dims", ()),
            integers(instr, "rhs_contracting_dims", ()),
        )
        self.group = integers(instr, "rhs_group_dims", ())
        self.free = tuple(
            tuple(
                d
                for d in range(self.shapes[side].rank)
                if d not in self.batch[side] + self.contract[side] + (self.group if side else ())
            )
            for side in (0, 1)
        )

    @property
    def steps(self) -> list[int]:
        """The sizes of the contracting dimensions."""
        return [self.shapes[0].dims[d] for d in self.contract[0]]

    def places(
        self, index: Index, steps: list[Expr], group: Expr | None = None
    ) -> tuple[dict[int, Expr], dict[int, Expr]]:
        """Return the index in lhs and rhs, by dimension, of one product of a result element."""
        rest = iter(index[len(self.batch[0]) :])
        found = []
        for side in (0, 1):
            place = dict(zip(self.batch[side], index, strict=False))
            place |= dict(zip(self.contract[side], steps, strict=True))
            place |= {d: next(rest) for d in self.free[side]}
            found.append(place)
        if group is not None:
            found[1] |= dict.fromkeys(self.group, group)
        return found[0], found[1]

    def add(
        self, element: Element, total: Expr, places: tuple[Mapping[int, Expr], Mapping[int, Expr]]
    ) -> None:
        """Add the product of the elements at `places` to `total`."""
        sides = []
        for side, place in enumerate(places):
            value = element.operand(side, tuple(place[d] for d in range(self.shapes[side].rank)))
            converted = f"hlo::convert<hlo::{self.wide}>({value})"
            same = self.shapes[side].dtype is self.wide
            sides.append(value if same else element.bind(self.wide, converted))
        element.line(f"{total} = hlo::plus_product({total}, {sides[0]}, {sides[1]});")


def scaled_dot(element: Element, instr: Instruction, index: Index) -> Expr:
    """Sum products of elements times the scales of their blocks."""
    wide = accumulator(written(instr).dtype)
    total = element.variable(wide, "{}")
    parts = DotParts(element, instr)
    with loops(element, parts.steps) as steps:
        sides = [
            _times_scale(element, side, wide, place)
            for side, place in enumerate(parts.places(index, steps))
        ]
        element.line(f"{total} = hlo::plus_product({total}, {sides[0]}, {sides[1]});")
    return narrowed(element, total, wide, written(instr).dtype)


def _times_scale(element: Element, side: int, wide: DType, place: Mapping[int, Expr]) -> Expr:
    shape, scale = element.shape(side), element.shape(side + 2)
    at = tuple(place[d] for d in range(shape.rank))
    block = tuple(
        element.integer(f"{at[d]} / {shape.dims[d] // scale.dims[d]}") for d in range(scale.rank)
    )
    value, factor = element.operand(side, at), element.operand(side + 2, block)
    product = f"hlo::convert<hlo::{wide}>({value}), hlo::convert<hlo::{wide}>({factor})"
    return element.bind(wide, f"hlo::multiply({product})")


def ragged_dot(element: Element, instr: Instruction, index: Index) -> Expr:
    """Sum products; which rows meet which group's matrix is read from the group sizes."""
    parts = DotParts(element, instr)
    (ragged,) = integers(instr, "lhs_ragged_dims")
    if ragged in parts.batch[0]:
        return dot(element, instr, index)
    total = element.variable(parts.wide, "{}")
    if ragged in parts.contract[0]:
        _within_group(element, parts, ragged, total, index)
    else:
        _by_group(element, parts, ragged, total, index)
    return narrowed(element, total, parts.wide, written(instr).dtype)


def _by_group(element: Element, parts: DotParts, ragged: int, total: Expr, index: Index) -> None:
    """The ragged dimension is one of the result: find the group that this row is in."""
    free = parts.free[0]
    before = len(parts.batch[0]) + free.index(ragged)
    prefix = index[:before] if element.shape(2).rank > 1 else ()
    end = element.variable(DTYPES["s64"], "0")
    with loops(element, [element.shape(2).dims[-1]]) as (group,):
        begin, end_after = _advance(element, (*prefix, group), end)
        row = index[before]
        with (
            element.block(f"if ({row} >= {begin} && {row} < {end_after})"),
            loops(element, parts.steps) as steps,
        ):
            parts.add(element, total, parts.places(index, steps, group))


def _within_group(
    element: Element, parts: DotParts, ragged: int, total: Expr, index: Index
) -> None:
    """The ragged dimension is summed over: only the steps of the result's group count."""
    group, *rest = index
    before = parts.contract[0].index(ragged)
    deep = element.shape(2).rank > 1
    with loops(element, parts.steps) as steps:
        prefix = (*rest[: len(parts.batch[0])], *steps[:before]) if deep else ()
        end = element.variable(DTYPES["s64"], "0")
        begin = element.variable(DTYPES["s64"], "0")
        name = element.fresh("n")
        with element.block(f"for (int {name} = 0; {name} <= {group}; ++{name})"):
            first, _ = _advance(element, (*prefix, name), end)
            element.line(f"{begin} = {first};")
        with element.block(f"if ({steps[before]} >= {begin} && {steps[before]} < {end})"):
            parts.add(element, total, parts.places(tuple(rest), steps))


def _advance(element: Element, place: Index, end: Expr) -> tuple[Expr, Expr]:
    """Move `end` past one more group; return where the group begins and ends."""
    begin = element.bind(DTYPES["s64"], end)
    element.line(f"{end} += (hlo::s64){element.operand(2, place)};")
    return begin, end


def convolution(element: Element, instr: Instruction, index: Index) -> Expr:
    """Sum products over the kernel's window and input features."""
    labels = instr.attrs["dim_labels"]
    assert isinstance(labels, DimLabels)
    lhs, rhs, target = element.shape(0), element.shape(1), written(instr)
    window, wide = window_dims(instr), accumulator(target.dtype, lhs.dtype, rhs.dtype)
    groups = integer(instr, "feature_group_count", 1)
    batches = integer(instr, "batch_group_count", 1)
    features = rhs.dims[labels.rhs.index("i")]
    outputs = rhs.dims[labels.rhs.index("o")]
    batch, feature = index[labels.out.index("b")], index[labels.out.index("f")]
    spatial = tuple(index[labels.out.index(str(d))] for d in range(len(window)))
    total = element.variable(wide, "{}")
    sizes = [*(w.size for w in window), features]
    with loops(element, sizes) as steps:
        sources = [lhs.dims[labels.lhs.index(str(d))] for d in range(len(window))]
        places, tests = window_places(element, spatial, steps[:-1], window, tuple(sources))
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
            factors = ", ".join(f"hlo::convert<hlo::{wide}>({x})" for x in (a, b))
            element.line(f"{total} = hlo::plus_product({total}, {factors});")
    return narrowed(element, total, wide, target.dtype)


def accumulator(dtype: DType, *factors: DType) -> DType:
    """Return the dtype that sums of products of `factors` are kept in, to become `dtype` then."""
    found = [t for t in (dtype, *factors) if not t.is_integer and t.name != "pred"]
    is_double = any(t.bits == (128 if t.is_complex else 64) for t in found)
    if any(t.is_complex for t in found):
        return DTYPES["c128" if is_double else "c64"]
    if found:
        return DTYPES["f64" if is_double else "f32"]
    if dtype.is_integer and dtype.bits < 32:
        return DTYPES["s32" if dtype.name.startswith("s") else "u32"]
    return dtype


def narrowed(element: Element, value: Expr, wide: DType, dtype: DType) -> Expr:
    """Return a sum, which is kept in `wide`, as the result's dtype has it."""
    if wide is dtype:
        return value
    return element.bind(dtype, f"hlo::convert<hlo::{dtype}>({value})")
