"""How sizes go through batch normalization: means are of what counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.hlo.dtype import F32
from hlo2graph.ops.expect import integer
from hlo2graph.passes.sizes.body import Body
from hlo2graph.passes.sizes.value import Place, Value, whole


def training(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Normalize by the mean and the variance of what counts."""
    x, scale, offset = values
    work = _Work.of(body, instr, x)
    wide = work.widened(x.name, x.array)
    mean = work.mean(wide)
    centered = work.apart("subtract", wide, mean)
    variance = work.mean(body.add("multiply", work.shape, [centered, centered]))
    normal = work.apart("multiply", centered, work.inverse_deviation(variance))
    scaled = work.apart("multiply", normal, work.widened(scale.name, scale.array))
    moved = work.apart("add", scaled, work.widened(offset.name, offset.array))
    return work.result([moved, mean, variance])


def gradient(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Give the gradients of the operand, of the scale and of the offset, of what counts."""
    x, scale, mean, variance, grown = values
    work = _Work.of(body, instr, x)
    wide = [work.widened(v.name, v.array) for v in (x, scale, mean, variance, grown)]
    inverse = work.inverse_deviation(wide[3])
    normal = work.apart("multiply", work.apart("subtract", wide[0], wide[2]), inverse)
    along = body.add("multiply", work.shape, [wide[4], normal])
    inner = work.apart("multiply", normal, work.mean(along))
    rest = work.apart("subtract", wide[4], work.mean(wide[4]))
    outer = body.add("subtract", work.shape, [rest, inner])
    factor = body.add("multiply", work.row, [wide[1], inverse])
    found = work.apart("multiply", outer, factor)
    return work.result([found, work.total(along), work.total(wide[4])])


@dataclass(frozen=True, slots=True)
class _Work:
    """One normalization, in a type that is wide enough for sums."""

    body: Body
    instr: Instruction
    x: Value
    feature: int
    shape: Shape  # of the operand
    row: Shape  # of one number a feature
    region: str

    @classmethod
    def of(cls, body: Body, instr: Instruction, x: Value) -> _Work:
        """Prepare to work on `x`."""
        given = x.array
        dtype = given.dtype if given.dtype.bits >= F32.bits else F32
        feature = integer(instr, "feature_index")
        scalar = Shape(dtype)
        region = Computation(
            f"{instr.name}.sum",
            (
                Instruction("left", "parameter", scalar, payload=0),
                Instruction("right", "parameter", scalar, payload=1),
                Instruction("sum", "add", scalar, ("left", "right")),
            ),
            "sum",
        )
        shape, row = Shape(dtype, given.dims, given.layout), Shape(dtype, (given.dims[feature],))
        return cls(body, instr, x, feature, shape, row, body.made(region))

    def widened(self, name: str, shape: Shape) -> str:
        """Return an array in the type of the work."""
        if shape.dtype is self.shape.dtype:
            return name
        return self.body.add("convert", Shape(self.shape.dtype, shape.dims, shape.layout), [name])

    def apart(self, opcode: str, name: str, row: str) -> str:
        """Combine an array with a number for each feature."""
        spread = self.body.add("broadcast", self.shape, [row], dimensions=(self.feature,))
        return self.body.add(opcode, self.shape, [name, spread])

    def total(self, name: str) -> str:
        """Return the sum of what counts, for each feature."""
        folded = tuple(d for d in range(self.shape.rank) if d != self.feature)
        seen = {d: size for d, size in self.x.along.items() if d != self.feature}
        zero = self.body.scalar(self.shape, np.asarray(0))
        masked = self.body.masked(name, self.shape, seen, zero)
        return self.body.add(
            "reduce", self.row, [masked, zero], dimensions=folded, to_apply=self.region
        )

    def mean(self, name: str) -> str:
        """Return the mean of what counts, for each feature."""
        dims = self.shape.dims
        seen = {d: size for d, size in self.x.along.items() if d != self.feature}
        fixed = prod(n for d, n in enumerate(dims) if d != self.feature and d not in seen)
        count = self.body.number(fixed)
        for size in seen.values():
            count = self.body.count("multiply", count, size)
        wide = self.body.add("convert", Shape(self.shape.dtype), [count])
        many = self.body.spread(wide, self.row)
        return self.body.add("divide", self.row, [self.total(name), many])

    def inverse_deviation(self, variance: str) -> str:
        """Return 1 / sqrt(variance + epsilon)."""
        held = self.instr.attrs["epsilon"]
        assert isinstance(held, int | float)
        epsilon = self.body.spread(self.body.scalar(self.row, np.asarray(held)), self.row)
        moved = self.body.add("add", self.row, [variance, epsilon])
        return self.body.add("rsqrt", self.row, [moved])

    def result(self, names: Sequence[str]) -> Value:
        """Return the results in their own types."""
        leaves = list(self.instr.shape.leaves())
        ended = []
        for name, leaf in zip(names, leaves, strict=True):
            same = leaf.dtype is self.shape.dtype
            ended.append(name if same else self.body.add("convert", whole(leaf), [name]))
        sizes: dict[Place, str] = {(0, d): size for d, size in self.x.along.items()}
        if self.feature in self.x.along:
            sizes |= {(leaf, 0): self.x.along[self.feature] for leaf in (1, 2)}
        shape = whole(self.instr.shape)
        return self.body.named(self.instr, "tuple", shape, ended, sizes, {})
