"""Convolutions of each feature by itself, and gradients of their kernels, as what they are: sums.

In and out: a Module of the same meaning; a machine may take the sums in another order. A feature
that sees no other fills no tile of a product's kernel. Its convolution is a sum over few taps, each
a cut of the padded image times a weight: elementwise work, which goes into kernels with other such.
Its kernel's gradient is a sum for each tap over all images and places, of a cut times the result's
gradient: reduces of equally large values, which are one kernel, and fold with many blocks.

The rule, all of it: as many groups as features, one kernel each, of real floats laid out row by
row, and MOST_TAPS taps at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from hlo2graph.hlo import (
    Attribute,
    Computation,
    DimLabels,
    Instruction,
    Module,
    PaddingDim,
    Shape,
    SliceDim,
)
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.expect import integer
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.values import add_filled, made
from hlo2graph.passes.split_steps import Regions, wide_type

MOST_TAPS = 25


def expand_depthwise(module: Module) -> Module:
    """Return `module` with convolutions of each feature by itself written as sums."""
    regions = Regions(module)

    def rewrite(draft: Draft) -> Computation:
        for name in [n for n, i in draft.instructions.items() if i.opcode == "convolution"]:
            instr = draft[name]  # as it reads what has become of others
            if draft.is_pure(instr):
                _Sums(draft, instr).write(regions)
        return draft.done()

    return regions.added_to(redraft(module, "convolution", rewrite))


class _Sums:
    def __init__(self, draft: Draft, instr: Instruction) -> None:
        labels, out = instr.attrs["dim_labels"], instr.shape
        assert isinstance(labels, DimLabels)
        assert isinstance(out, Shape)
        self.draft, self.instr, self.labels, self.out = draft, instr, labels, out
        self.window = window_dims(instr)
        self.lhs, self.rhs = (draft.shape(name) for name in instr.operands)
        self.digits = [str(d) for d in range(len(self.window))]
        self.wide = wide_type(out.dtype)

    def write(self, regions: Regions) -> None:
        """Put sums in the convolution's place, if each feature is by itself."""
        shapes = (self.lhs, self.rhs, self.out)
        if not all(is_settled(s) and s.is_row_major and s.elements for s in shapes):
            return
        if not all(s.dtype.is_float and s.dtype.size <= self.wide.size for s in shapes):
            return
        if self._is_depthwise():
            total = self._added_up()
        elif self._is_gradient():
            total = self._folded(regions.named("add", self.wide))
        else:
            return
        if self.wide is self.out.dtype:
            self.draft.redirect(self.instr.name, total)
        else:
            self.draft.become(self.instr.name, made(self.instr, "convert", (total,)))

    def _count(self, kind: str) -> int:
        return integer(self.instr, f"{kind}_group_count", 1)

    def _is_depthwise(self) -> bool:
        labels, groups = self.labels, self._count("feature")
        features = self.lhs.dims[labels.lhs.index("f")], self.rhs.dims[labels.rhs.index("o")]
        return features == (groups, groups) and prod(w.size for w in self.window) <= MOST_TAPS

    def _is_gradient(self) -> bool:
        labels, groups = self.labels, self._count("batch")
        features = self.lhs.dims[labels.lhs.index("b")], self.rhs.dims[labels.rhs.index("o")]
        alike = labels.lhs.replace("f", "i").replace("b", "o") == labels.rhs
        taps = prod(self.out.dims[labels.out.index(d)] for d in self.digits)
        turned = any(w.reversal for w in self.window)
        return features == (groups, groups) and alike and taps <= MOST_TAPS and not turned

    def _added_up(self) -> str:
        """Return the sum over the window's taps of a cut of the image times a weight."""
        draft, instr, labels = self.draft, self.instr, self.labels
        padded, total = self._padded(), ""
        sizes = [self.out.dims[labels.out.index(d)] for d in self.digits]
        for tap in product(*(range(w.size) for w in self.window)):
            places = [
                SliceDim(t * w.rhs_dilate, t * w.rhs_dilate + (size - 1) * w.stride + 1, w.stride)
                for t, w, size in zip(tap, self.window, sizes, strict=True)
            ]
            cut = self._converted(self._cut(padded, labels.lhs, places))
            shape = draft.shape(cut)
            attrs: dict[str, Attribute] = {"dimensions": (labels.lhs.index("f"),)}
            weight = draft.add(instr, "broadcast", shape, (self._weight(tap),), attrs)
            term = draft.add(instr, "multiply", shape, (cut, weight))
            total = draft.add(instr, "add", shape, (total, term)) if total else term
        return self._turned(total, labels.lhs)

    def _weight(self, tap: Sequence[int]) -> str:
        """Return the weights of all features at one of the window's taps."""
        places = [
            SliceDim(w.size - 1 - t, w.size - t) if w.reversal else SliceDim(t, t + 1)
            for t, w in zip(tap, self.window, strict=True)
        ]
        cut = self._cut(self.instr.operands[1], self.labels.rhs, places)
        flat = Shape(self.rhs.dtype, (self.draft.shape(cut).elements,))
        return self._converted(self.draft.add(self.instr, "reshape", flat, (cut,)))

    def _folded(self, region: str) -> str:
        """Return the sums, one for each tap, of a cut of the image times the result's gradient."""
        draft, instr, labels = self.draft, self.instr, self.labels
        padded, kernel = self._padded(), self._converted(instr.operands[1])
        feature = labels.lhs.index("b")
        count = self.lhs.dims[feature]
        others = tuple(d for d in range(self.lhs.rank) if d != feature)
        attrs: dict[str, Attribute] = {"dimensions": others, "to_apply": region}
        zero = add_filled(draft, instr, Shape(self.wide), np.zeros((), self.wide.numpy))
        sizes = [self.out.dims[labels.out.index(d)] for d in self.digits]
        sums = []
        for tap in product(*map(range, sizes)):
            places = [
                SliceDim(t * w.stride, t * w.stride + (w.size - 1) * w.rhs_dilate + 1, w.rhs_dilate)
                for t, w in zip(tap, self.window, strict=True)
            ]
            cut = self._converted(self._cut(padded, labels.lhs, places))
            term = draft.add(instr, "multiply", draft.shape(cut), (cut, kernel))
            total = draft.add(instr, "reduce", Shape(self.wide, (count,)), (term, zero), attrs)
            sums.append(draft.add(instr, "reshape", Shape(self.wide, (1, count)), (total,)))
        whole = Shape(self.wide, (len(sums), count))
        both = draft.add(instr, "concatenate", whole, sums, {"dimensions": (0,)})
        apart = Shape(self.wide, (*sizes, 1, count))
        return self._turned(
            draft.add(instr, "reshape", apart, (both,)), "".join((*self.digits, "b", "f"))
        )

    def _padded(self) -> str:
        """Return the image with its padding and what dilates it; itself without any."""
        draft, instr, labels = self.draft, self.instr, self.labels
        padding = [PaddingDim(0, 0) for _ in self.lhs.dims]
        dims = list(self.lhs.dims)
        for digit, w in zip(self.digits, self.window, strict=True):
            at = labels.lhs.index(digit)
            padding[at] = PaddingDim(w.pad_low, w.pad_high, w.lhs_dilate - 1)
            dims[at] = (dims[at] - 1) * w.lhs_dilate + 1 + w.pad_low + w.pad_high
        if tuple(padding) == (PaddingDim(0, 0),) * self.lhs.rank:
            return instr.operands[0]
        dtype = self.lhs.dtype
        zero = add_filled(draft, instr, Shape(dtype), np.zeros((), dtype.numpy))
        operands = (instr.operands[0], zero)
        attrs: dict[str, Attribute] = {"padding": tuple(padding)}
        return draft.add(instr, "pad", Shape(dtype, tuple(dims)), operands, attrs)

    def _cut(self, name: str, labels: str, places: Sequence[SliceDim]) -> str:
        """Return what is at some places of the spatial dimensions, and all of the others."""
        shape = self.draft.shape(name)
        ranges = [SliceDim(0, n) for n in shape.dims]
        for digit, place in zip(self.digits, places, strict=True):
            ranges[labels.index(digit)] = place
        dims = tuple(-(-(r.limit - r.start) // r.stride) for r in ranges)
        attrs: dict[str, Attribute] = {"slice": tuple(ranges)}
        return self.draft.add(self.instr, "slice", Shape(shape.dtype, dims), (name,), attrs)

    def _converted(self, name: str) -> str:
        shape = self.draft.shape(name)
        if shape.dtype is self.wide:
            return name
        return self.draft.add(self.instr, "convert", replace(shape, dtype=self.wide), (name,))

    def _turned(self, name: str, labels: str) -> str:
        """Return what has the dimensions `labels` with them in the result's order."""
        order = tuple(labels.index(label) for label in self.labels.out)
        if list(order) == sorted(order):
            return name
        shape = Shape(self.wide, self.out.dims)
        return self.draft.add(self.instr, "transpose", shape, (name,), {"dimensions": order})
