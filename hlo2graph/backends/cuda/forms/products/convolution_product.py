"""A convolution as a product of matrices: where the elements of a row, a column and a step lie.

A row is a place of the result, a column an output feature; the sum runs over the window's places
and the input features. Groups are products of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.product import Side, minor_dim
from hlo2graph.hlo import DimLabels
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_folds import window_dims, window_places
from hlo2graph.ops.device_products import accumulator
from hlo2graph.ops.expect import integer, written


class ConvolutionProduct:
    """A convolution as a product: rows are places of the result, columns its features.

    Rows are in the order in which they lie in lhs, so that neighbours stay neighbours. What is
    padding may be read where it `clamps` to the first place.
    """

    def __init__(self, form: Form, *, clamps: bool = True) -> None:
        instr = form.instr
        labels = instr.attrs["dim_labels"]
        assert isinstance(labels, DimLabels)
        self._instr, self._labels, self._window = instr, labels, window_dims(instr)
        self._lhs, self._rhs, self._out = form.shape(0), form.shape(1), written(instr)
        self._places: dict[tuple[Index, Index], tuple[Index, list[Expr]]] = {}
        self._whole: dict[tuple[Expr, Expr, int], Expr] = {}
        self._other_end: dict[tuple[Expr, int], Expr] = {}
        self.step_parts: dict[Expr, Expr] = {}  # of sums: what a step of the product adds to it
        self.of_group: dict[Expr, tuple[Expr, int]] = {}  # of numbers of features
        self._clamps = clamps
        self._groups = {
            label: integer(instr, f"{kind}_group_count", 1)
            for label, kind in (("f", "feature"), ("b", "batch"))
        }
        self.wide = accumulator(self._out.dtype, self._lhs.dtype, self._rhs.dtype)
        self.batches: Sequence[int] = [n for n in self._groups.values() if n > 1]
        self._digits = [str(d) for d in range(len(self._window))]
        self._taps = self._ordered_taps()
        sizes = {"f": self._lhs.dims[labels.lhs.index("f")] // self._groups["f"]}
        sizes |= {d: w.size for d, w in zip(self._digits, self._window, strict=True)}
        self.steps: Sequence[int] = [sizes[label] for label in self._taps]
        self._free = [labels.lhs[d] for d in self._lhs.minor_to_major[::-1]]
        self._free.remove("f")
        places = tuple(self._out.dims[labels.out.index(label)] for label in self._free)
        features = self._out.dims[labels.out.index("f")]
        for groups in self.batches:
            features //= groups
        minor = minor_dim(self._lhs)
        is_deep = minor is not None and labels.lhs[minor] == self._taps[-1]
        at_columns = minor_dim(self._rhs) == labels.rhs.index("o")
        self.sides = (Side(0, places, is_deep), Side(1, (features,), not at_columns))

    def _ordered_taps(self) -> list[str]:
        """Return what is summed over: in a kernel's gradient in the order in which it lies in lhs.

        Elsewhere the features are last, since what is padding depends on the window's place alone.
        """
        found = [*self._digits, "f"]
        out = [self._out.dims[self._labels.out.index(d)] for d in self._digits]
        if prod(w.size for w in self._window) > prod(out):
            order = self._lhs.minor_to_major[::-1]
            found = [self._labels.lhs[d] for d in order if self._labels.lhs[d] in found]
        return found

    def locate(
        self, emit: ElementEmitter, operand: int, batch: Index, free: Index, step: Index
    ) -> tuple[Index, list[Expr]]:
        """Return the place under a window's place; where that is padding, the first and a test."""
        at = dict(zip(self._taps, step, strict=True))
        if operand == 1:
            return self._in_kernel(emit, batch, free[0], at), []
        taps = tuple(at[d] for d in self._digits)
        parts = dict(zip(self._free, free, strict=True)) | {"f": at["f"]}
        key = (tuple(parts[d] for d in self._digits), taps)
        if key not in self._places:
            self._places[key] = self._under(emit, *key)
        places, tests = self._places[key]
        parts |= dict(zip(self._digits, places, strict=True))
        for label in self._grouped():
            size = self._lhs.dims[self._labels.lhs.index(label)] // self._groups[label]
            whole = self._joined(emit, batch[0], parts[label], size)
            if label == "f":
                self.step_parts[whole] = parts[label]
            parts[label] = whole
        return tuple(parts[c] for c in self._labels.lhs), tests

    def _under(
        self, emit: ElementEmitter, at: Sequence[Expr], taps: Sequence[Expr]
    ) -> tuple[Index, list[Expr]]:
        sizes = [self._lhs.dims[self._labels.lhs.index(d)] for d in self._digits]
        element = emit.operands_of(self._instr)
        places, tests = window_places(element, at, taps, self._window, sizes)
        for place, tap, w in zip(places, taps, self._window, strict=True):
            if w.lhs_dilate == 1:
                self.step_parts[place] = _times(tap, w.rhs_dilate)
        if tests and self._clamps:
            inside = " && ".join(tests)
            places = tuple(emit.integer(f"{inside} ? {place} : 0") for place in places)
        return places, tests

    def _in_kernel(
        self, emit: ElementEmitter, batch: Index, feature: Expr, at: dict[str, Expr]
    ) -> Index:
        if batch:
            feature = self._joined(emit, batch[0], feature, self.sides[1].extent)
        parts = {"i": at["f"], "o": feature}
        for digit, w in zip(self._digits, self._window, strict=True):
            parts[digit] = self._turned(emit, w.size, at[digit]) if w.reversal else at[digit]
        return tuple(parts[c] for c in self._labels.rhs)

    def _turned(self, emit: ElementEmitter, size: int, tap: Expr) -> Expr:
        if (tap, size) not in self._other_end:
            turned = emit.integer(f"{size - 1} - {tap}")
            self._other_end[tap, size] = turned
            self.step_parts[turned] = f"-{tap}"
        return self._other_end[tap, size]

    def result(self, batch: Index, lhs: Index, rhs: Index) -> Index:
        """Return the index of a place and a feature."""
        parts = dict(zip(self._free, lhs, strict=True))
        before = f"{batch[0]} * {self.sides[1].extent} + " if batch else ""
        parts["f"] = f"({before}{rhs[0]})" if before else rhs[0]
        return tuple(parts[c] for c in self._labels.out)

    def is_of_lhs(self, dim: int) -> bool:
        """Tell whether the dimension is not that of the features."""
        return dim >= len(self._labels.out) or self._labels.out[dim] != "f"

    def _grouped(self) -> list[str]:
        return [label for label, groups in self._groups.items() if groups > 1]

    def _joined(self, emit: ElementEmitter, group: Expr, part: Expr, size: int) -> Expr:
        key = (group, part, size)
        if key not in self._whole:
            self._whole[key] = emit.places.joined(group, self.batches[0], part, size)
            self.of_group[self._whole[key]] = part, size
        return self._whole[key]


def _times(number: Expr, factor: int) -> Expr:
    return number if factor == 1 or number == "0" else f"({number} * {factor})"
