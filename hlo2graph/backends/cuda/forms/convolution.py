"""The convolution form: a product of matrices on tensor cores whose lhs is gathered on the way.

A row is a place of the result, a column an output feature; the sum runs over the window's places
and the input features. Nothing is laid out as a matrix in memory.

Where most of a tile would be empty, a thread computes each result instead, as in a loop; not where
the sum is long, as in gradients of few weights: a tile's warps share it out, a thread has it all.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.dot_tensor import FEWEST_ROWS, fills_products, tensor_kernel
from hlo2graph.backends.cuda.forms.dot_tile import CHUNK, MOST_WARPS
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.product import Side, minor_dim
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import DimLabels
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_folds import window_dims, window_places
from hlo2graph.ops.device_products import accumulator
from hlo2graph.ops.expect import integer, written


def suits_convolution(form: Form) -> bool:
    """Every output feature sees all input features, tensor cores may compute it, and gain by it."""
    groups = [integer(form.instr, f"{kind}_group_count", 1) for kind in ("feature", "batch")]
    product = _Convolution(form)
    is_long = prod(product.steps) >= CHUNK * MOST_WARPS
    return groups == [1, 1] and fills_products(form, product, 1 if is_long else FEWEST_ROWS)


def convolution_kernel(form: Form) -> KernelSource:
    """Return the kernel of a convolution and of the elementwise work on both sides of it."""
    return tensor_kernel(form, _Convolution(form))


class _Convolution:
    """A convolution as a product: rows are places of the result, columns its features."""

    def __init__(self, form: Form) -> None:
        instr = form.instr
        labels = instr.attrs["dim_labels"]
        assert isinstance(labels, DimLabels)
        self._instr, self._labels, self._window = instr, labels, window_dims(instr)
        self._lhs = form.shape(0)
        self._places: dict[tuple[Index, Index], tuple[Index, list[Expr]]] = {}
        lhs, rhs, out = form.shape(0), form.shape(1), written(instr)
        digits = [str(d) for d in range(len(self._window))]
        self.wide = accumulator(out.dtype, lhs.dtype, rhs.dtype)
        self.batches: Sequence[int] = ()
        self.steps: Sequence[int] = [
            *(w.size for w in self._window),
            lhs.dims[labels.lhs.index("f")],
        ]
        places = tuple(out.dims[labels.out.index(label)] for label in ("b", *digits))
        features = (out.dims[labels.out.index("f")],)
        self.sides = (
            Side(0, places, minor_dim(lhs) == labels.lhs.index("f")),
            Side(1, features, minor_dim(rhs) != labels.rhs.index("o")),
        )

    def locate(
        self, emit: ElementEmitter, operand: int, batch: Index, free: Index, step: Index
    ) -> tuple[Index, list[Expr]]:
        """Return the place under a window's place; where that is padding, the first and a test."""
        del batch
        *taps, feature = step
        if operand == 1:
            turned = [
                emit.integer(f"{w.size - 1} - {tap}") if w.reversal else tap
                for w, tap in zip(self._window, taps, strict=True)
            ]
            parts = {"i": feature, "o": free[0]} | {str(d): t for d, t in enumerate(turned)}
            return tuple(parts[c] for c in self._labels.rhs), []
        image, *spatial = free
        key = (free, tuple(taps))
        if key not in self._places:
            sizes = [self._lhs.dims[self._labels.lhs.index(str(d))] for d in range(len(taps))]
            element = emit.operands_of(self._instr)
            places, tests = window_places(element, spatial, taps, self._window, sizes)
            if tests:
                inside = " && ".join(tests)
                places = tuple(emit.integer(f"{inside} ? {place} : 0") for place in places)
            self._places[key] = places, tests
        places, tests = self._places[key]
        parts = {"b": image, "f": feature} | {str(d): place for d, place in enumerate(places)}
        return tuple(parts[c] for c in self._labels.lhs), tests

    def result(self, batch: Index, lhs: Index, rhs: Index) -> Index:
        """Return the index of a place and a feature."""
        del batch
        image, *spatial = lhs
        parts = {"b": image, "f": rhs[0]} | {str(d): place for d, place in enumerate(spatial)}
        return tuple(parts[c] for c in self._labels.out)

    def is_of_lhs(self, dim: int) -> bool:
        """Tell whether the dimension is not that of the features."""
        return dim >= len(self._labels.out) or self._labels.out[dim] != "f"
