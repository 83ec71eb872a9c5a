"""Batch normalisations as what they are: sums over all that is of a feature, and work on elements.

In and out: a Module of the same meaning; a machine may take the sums in another order. So the
statistics of a large array are folded by many blocks, together with what makes the array, and what
is made of them goes into the kernels of their neighbours. An empty array keeps its kernel.

The variance is the mean of squares around the mean where one kernel can hold the elements of a
feature. Elsewhere a second pass would read memory again: there both sums are of the elements less
the feature's middle one, which is about as far from the mean as any. What squares lose to the
difference of these sums is the ratio of that distance's square to the variance; taken around zero,
it would be that of the mean's square, and all digits of a feature far from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hlo2graph.hlo import DTYPES, Attribute, Computation, Instruction, Module, Shape, SliceDim
from hlo2graph.ops.expect import integer
from hlo2graph.ops.region import MOST_COLUMNS
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.values import add_filled, made
from hlo2graph.passes.split_steps import Regions, wide_type

_PRED = DTYPES["pred"]


def expand_normalizations(module: Module) -> Module:
    """Return `module` with reduces and elementwise work for each batch normalisation."""
    regions = Regions(module)

    def rewrite(draft: Draft) -> Computation:
        for instr in [i for i in draft.instructions.values() if i.opcode in _EXPANDED]:
            if instr.name in draft and draft.is_pure(instr) and _can_be_expanded(draft, instr):
                _EXPANDED[instr.opcode](_Norm(draft, instr, regions))
        return draft.done()

    return regions.added_to(redraft(module, _EXPANDED, rewrite))


def _can_be_expanded(draft: Draft, instr: Instruction) -> bool:
    return all(is_settled(draft.shape(o)) and draft.shape(o).elements for o in instr.operands)


@dataclass(frozen=True, slots=True)
class _Norm:
    """Writes what stands for `instr`, in a type wide enough for sums."""

    draft: Draft
    instr: Instruction
    regions: Regions

    # ---- the three ------------------------------------------------------------------------

    def training(self) -> None:
        """Write the normalised elements, mean and variance."""
        value, scale, offset = map(self._operand, range(3))
        mean, variance = self._statistics(value)
        factor = self._each("multiply", scale, self._root(variance))
        self._become(self._normal(value, mean, factor, offset), mean, variance)

    def inference(self) -> None:
        """Write the elements, normalised by given statistics."""
        value, scale, offset, mean, variance = map(self._operand, range(5))
        factor = self._each("multiply", scale, self._root(variance))
        whole = self._normal(value, mean, factor, offset)
        self.draft.become(self.instr.name, made(self.instr, self._last, (whole,)))

    def gradient(self) -> None:
        """Write the gradients of the operand, of scale and of offset."""
        value, scale, mean, variance, gradient = map(self._operand, range(5))
        root = self._root(variance)
        around = self._whole("subtract", value, self._spread(mean))
        to_offset = self._sum(gradient)
        to_scale = self._each(
            "multiply", self._sum(self._whole("multiply", gradient, around)), root
        )
        slope = self._mean(self._each("multiply", to_scale, root))
        spread = self._whole("multiply", around, self._spread(slope))
        rest = self._whole("subtract", gradient, self._spread(self._mean(to_offset)))
        factor = self._spread(self._each("multiply", scale, root))
        to_value = self._whole("multiply", self._whole("subtract", rest, spread), factor)
        self._become(to_value, to_scale, to_offset)

    # ---- their parts ----------------------------------------------------------------------

    def _statistics(self, value: str) -> tuple[str, str]:
        """Return the mean and the variance of each feature."""
        if self._fits_rows():
            mean = self._mean(self._sum(value))
            around = self._whole("subtract", value, self._spread(mean))
            return mean, self._mean(self._sum(self._whole("multiply", around, around)))
        middle = self._middle(value)
        around = self._whole("subtract", value, self._spread(middle))
        off = self._mean(self._sum(around))
        squares = self._mean(self._sum(self._whole("multiply", around, around)))
        variance = self._each("subtract", squares, self._each("multiply", off, off))
        zero = self._filled(0.0)
        return self._each("add", off, middle), self._each("maximum", variance, zero)

    def _fits_rows(self) -> bool:
        """Tell whether one kernel can fold a feature's elements, and then look at them again."""
        shape = self._shape
        minor = next((d for d in shape.minor_to_major if shape.dims[d] > 1), self._feature)
        return minor != self._feature and self._count <= MOST_COLUMNS

    def _middle(self, value: str) -> str:
        """Return an element of each feature; 0 where that is no number to count from."""
        shape, feature = self._shape, self._feature
        places = tuple(
            SliceDim(0, n) if d == feature else SliceDim(n // 2, n // 2 + 1)
            for d, n in enumerate(shape.dims)
        )
        dims = tuple(n if d == feature else 1 for d, n in enumerate(shape.dims))
        cut = self._add("slice", Shape(shape.dtype, dims), value, slice=places)
        middle = self._add("reshape", self._features, cut)
        finite = self._add("is-finite", replace(self._features, dtype=_PRED), middle)
        return self._add("select", self._features, finite, middle, self._filled(0.0))

    def _normal(self, value: str, mean: str, factor: str, offset: str) -> str:
        around = self._whole("subtract", value, self._spread(mean))
        scaled = self._whole("multiply", around, self._spread(factor))
        return self._whole("add", scaled, self._spread(offset))

    def _root(self, variance: str) -> str:
        """Return 1 over the standard deviation."""
        held = self.instr.attrs["epsilon"]
        assert isinstance(held, int | float)
        epsilon = self._filled(float(np.float32(held)))  # XLA holds it as a float32
        return self._each("rsqrt", self._each("add", variance, epsilon))

    def _mean(self, total: str) -> str:
        return self._each("divide", total, self._filled(float(self._count)))

    # ---- instructions ---------------------------------------------------------------------

    @property
    def _feature(self) -> int:
        return integer(self.instr, "feature_index")

    @property
    def _shape(self) -> Shape:
        """The shape of all elements, in the type that they are summed in."""
        return replace(self._given, dtype=wide_type(self._given.dtype))

    @property
    def _given(self) -> Shape:
        return self.draft.shape(self.instr.operands[0])

    @property
    def _last(self) -> str:
        """The opcode that brings a value into the type and layout of a result."""
        return "copy" if self._given.dtype is self._shape.dtype else "convert"

    @property
    def _features(self) -> Shape:
        shape = self._shape
        return Shape(shape.dtype, (shape.dims[self._feature],))

    @property
    def _count(self) -> int:
        return prod(n for d, n in enumerate(self._shape.dims) if d != self._feature)

    def _add(self, opcode: str, shape: Shape, *operands: str, **attrs: Attribute) -> str:
        return self.draft.add(self.instr, opcode, shape, operands, attrs)

    def _whole(self, opcode: str, *operands: str) -> str:
        return self._add(opcode, self._shape, *operands)

    def _each(self, opcode: str, *operands: str) -> str:
        return self._add(opcode, self._features, *operands)

    def _operand(self, number: int) -> str:
        name = self.instr.operands[number]
        shape, wide = self.draft.shape(name), self._shape.dtype
        if shape.dtype is wide:
            return name
        return self._add("convert", replace(shape, dtype=wide), name)

    def _spread(self, each: str) -> str:
        return self._add("broadcast", self._shape, each, dimensions=(self._feature,))

    def _filled(self, value: float) -> str:
        shape = self._features
        return add_filled(self.draft, self.instr, shape, np.asarray(value, shape.dtype.numpy))

    def _sum(self, value: str) -> str:
        dtype = self._shape.dtype
        others = tuple(d for d in range(self._shape.rank) if d != self._feature)
        if not others:
            return value
        zero = add_filled(self.draft, self.instr, Shape(dtype), np.zeros((), dtype.numpy))
        region = self.regions.named("add", dtype)
        return self._add("reduce", self._features, value, zero, dimensions=others, to_apply=region)

    def _become(self, *values: str) -> None:
        """Put the values, in the types of the results, into the place of the instruction."""
        parts = [
            self._add(self._last, leaf, name)
            for name, leaf in zip(values, self.instr.shape.leaves(), strict=True)
        ]
        self.draft.become(self.instr.name, made(self.instr, "tuple", tuple(parts)))


_EXPANDED: dict[str, Callable[[_Norm], None]] = {
    "batch-norm-training": _Norm.training,
    "batch-norm-inference": _Norm.inference,
    "batch-norm-grad": _Norm.gradient,
}
