"""Device rules that loop: folding a region along dimensions or over windows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from hlo2graph.hlo import DTYPES, Instruction, Shape, Window, WindowDim
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.expect import integers, written


def reduce(element: Element, instr: Instruction, index: Index) -> tuple[Expr, ...]:
    """Fold the region along the reduced dimensions, in row-major order."""
    count = len(instr.operands) // 2
    shape, dims = element.shape(0), sorted(integers(instr, "dimensions"))
    totals = _running(element, instr, count)
    with loops(element, [shape.dims[d] for d in dims]) as steps:
        inner = iter(index)
        along = dict(zip(dims, steps, strict=True))
        source = tuple(along[d] if d in along else next(inner) for d in range(shape.rank))
        values = [element.operand(k, source) for k in range(count)]
        _fold(element, instr, totals, values)
    return tuple(totals)


def reduce_window(element: Element, instr: Instruction, index: Index) -> tuple[Expr, ...]:
    """Fold the region over the window's elements that lie inside the operand."""
    count = len(instr.operands) // 2
    shape, window = element.shape(0), window_dims(instr)
    totals = _running(element, instr, count)
    with loops(element, [w.size for w in window]) as steps:
        places, tests = window_places(element, index, steps, window, shape.dims)
        with element.block(f"if ({' && '.join(tests) or 'true'})"):
            values = [element.operand(k, places) for k in range(count)]
            _fold(element, instr, totals, values)
    return tuple(totals)


def select_and_scatter(element: Element, instr: Instruction, index: Index) -> Expr:
    """Fold in, in their order, the sources of all windows whose chosen element this one is."""
    operand, source, window = element.shape(0), element.shape(1), window_dims(instr)
    total = element.variable(written(instr).dtype, element.operand(2))
    dims = [
        _Covering(w, count, size)
        for w, count, size in zip(window, source.dims, operand.dims, strict=True)
    ]
    with loops(element, [dim.most for dim in dims]) as steps:
        found = [dim.at(element, i, n) for dim, i, n in zip(dims, index, steps, strict=True)]
        tests = [test for _, _, more in found for test in more]
        with element.block(f"if ({' && '.join(tests) or 'true'})"):
            at = tuple(place for place, _, _ in found)
            chosen = _chosen(element, instr, at, operand)
            here = element.integer(_number([tap for _, tap, _ in found], window))
            with element.block(f"if ({chosen} == {here})"):
                value = element.operand(1, at)
                (folded,) = element.call(str(instr.attrs["scatter"]), (total, value))
                element.line(f"{total} = {folded};")
    return total


@dataclass(frozen=True, slots=True)
class _Covering:
    """The windows along one dimension that an element is in: at most `most` of `count`."""

    w: WindowDim
    count: int
    size: int  # of the operand

    @property
    def most(self) -> int:
        """Windows; where there are dilations, taps, most of which may be those of none."""
        return -(-self.w.size // self.w.stride) if self._is_dense else self.w.size

    @property
    def _is_dense(self) -> bool:
        return self.w.lhs_dilate == self.w.rhs_dilate == 1

    def at(self, element: Element, index: Expr, step: Expr) -> tuple[Expr, Expr, list[Expr]]:
        """Return the window after so many that cover element `index`, its tap there, and tests."""
        w = self.w
        if not self._is_dense:
            tap = f"({w.size - 1} - {step})"  # the first window is where this is the last tap
            moved = f"{index} * {w.lhs_dilate} + ({w.pad_low}) - {tap} * {w.rhs_dilate}"
            moved = element.integer(moved)
            place = moved if w.stride == 1 else element.integer(f"{moved} / {w.stride}")
            tests = [f"{moved} >= 0", f"{place} < {self.count}"]
            return place, tap, tests + [f"{moved} % {w.stride} == 0"] * (w.stride > 1)
        if w.size == w.stride == 1 and not w.pad_low:
            return index, "0", [f"{index} < {self.count}"] * (self.count < self.size)
        moved = element.integer(f"{index} + ({w.pad_low})") if w.pad_low else index
        before = f" - ({self.most - 1} - {step})" if self.most > 1 else ""
        place = element.integer(f"{moved} / {w.stride}{before}")
        tap = element.integer(f"{moved} - {place} * {w.stride}")
        last = (self.size - 1 + w.pad_low) // w.stride
        tests = [f"{moved} >= 0"] * (w.pad_low < 0) + [f"{place} >= 0"] * (self.most > 1)
        tests += [f"{place} < {self.count}"] * (last >= self.count)
        return place, tap, tests + [f"{tap} < {w.size}"] * (w.size % w.stride > 0)


def _number(taps: Sequence[Expr], window: Sequence[WindowDim]) -> Expr:
    """Return the row-major number of a tap in its window."""
    number = "0"
    for tap, w in zip(taps, window, strict=True):
        if w.size > 1:
            number = tap if number == "0" else f"({number}) * {w.size} + {tap}"
    return number


def _chosen(element: Element, instr: Instruction, at: Sequence[Expr], operand: Shape) -> Expr:
    """Return the number of the element that the window at `at` selects; -1 where it has none."""
    window = window_dims(instr)
    best = element.variable(operand.dtype, "{}")
    counter = DTYPES["s32" if prod(w.size for w in window) < 2**31 else "s64"]
    chosen = element.variable(counter, "-1")
    with loops(element, [w.size for w in window]) as steps:
        places, tests = window_places(element, at, steps, window, operand.dims)
        with element.block(f"if ({' && '.join(tests) or 'true'})"):
            value = element.operand(0, places)
            (keep,) = element.call(str(instr.attrs["select"]), (best, value))
            with element.block(f"if ({chosen} < 0 || !{keep})"):
                element.line(f"{best} = {value};")
                element.line(f"{chosen} = {_number(steps, window)};")
    return chosen


def _running(element: Element, instr: Instruction, count: int) -> list[Expr]:
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


def window_dims(instr: Instruction) -> tuple[WindowDim, ...]:
    """Return the dimensions of the attribute `window`; none where it is not written."""
    held = instr.attrs.get("window")
    return held.dims if isinstance(held, Window) else ()


def window_places(
    element: Element,
    index: Sequence[Expr],
    steps: Sequence[Expr],
    window: Sequence[WindowDim],
    sizes: Sequence[int],
) -> tuple[Index, list[str]]:
    """Return where each window element lies in the operand, and the tests that it lies inside."""
    places, tests = [], []
    for i, step, w, size in zip(index, steps, window, sizes, strict=True):
        place = _moved(element, i, step, w)
        if w.lhs_dilate > 1:
            tests += [f"{place} % {w.lhs_dilate} == 0", f"{place} >= 0"]
            place = element.integer(f"{place} / {w.lhs_dilate}")
            tests.append(f"{place} < {size}")
        else:
            span = (w.size - 1) * w.rhs_dilate
            further = (size + w.pad_low + w.pad_high - span - 1) // w.stride * w.stride
            tests += [f"{place} >= 0"] if w.pad_low > 0 else []
            tests += [f"{place} < {size}"] if further + span - w.pad_low >= size else []
        places.append(place)
    return tuple(places), tests


def _moved(element: Element, index: Expr, step: Expr, w: WindowDim) -> Expr:
    """Return where a window's element lies in the operand with its padding cut off."""
    if index == "0" and w.rhs_dilate == 1 and not w.pad_low:
        return step
    found = index if w.stride == 1 else f"{index} * {w.stride}"
    if step != "0":
        found += f" + {step}" if w.rhs_dilate == 1 else f" + {step} * {w.rhs_dilate}"
    if w.pad_low:
        found += f" {'-' if w.pad_low > 0 else '+'} {abs(w.pad_low)}"
    return index if found == index else element.integer(found)


class loops(ExitStack):
    """Nested counting loops; entering yields their counters, 0 for loops of one step."""

    def __init__(self, element: Element, sizes: Sequence[int]) -> None:
        super().__init__()
        self._element, self._sizes = element, sizes

    def __enter__(self) -> list[Expr]:  # type: ignore[override]
        super().__enter__()
        steps = []
        for size in self._sizes:
            if size == 1:
                steps.append("0")
                continue
            name = self._element.fresh("n")
            kind = "int" if size < 2**31 else "long long"
            head = f"for ({kind} {name} = 0; {name} < {size}; ++{name})"
            self.enter_context(self._element.block(head))
            steps.append(name)
        return steps
