"""One computation while its sizes are followed: what has been written, and helpers to write more.

Whole arrays keep the names of the instructions that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hlo2graph.hlo import (
    DTYPES,
    AnyShape,
    Attribute,
    Computation,
    Instruction,
    Literal,
    PaddingDim,
    Shape,
    TupleShape,
)
from hlo2graph.hlo.dtype import PRED, S32
from hlo2graph.hlo.literal import AnyLiteral
from hlo2graph.ops.spec import Array
from hlo2graph.passes.names import Names
from hlo2graph.passes.sizes.value import Place, Value, whole

SIZE = Shape(S32)


class Body:
    """The instructions written so far, and what became of those that were read."""

    def __init__(
        self,
        names: Iterable[str],
        computations: Mapping[str, Computation],
        add: Callable[[Computation], str],
    ) -> None:
        self.computations = computations  # all that can be called, as they were
        self.made = add  # what adds a computation and tells its name
        self.lines: list[Instruction] = []
        self._written: dict[str, Instruction] = {}
        self.values: dict[str, Value] = {}
        self._names = Names(names)
        self._like: Instruction | None = None
        self._numbers: dict[tuple[str, bytes], str] = {}
        self._wholes: dict[str, str] = {}

    def begin(self, instr: Instruction) -> list[Value]:
        """Let what is written come of `instr` from here on; return its operands."""
        self._like = instr
        return [self.values[o] for o in instr.operands]

    def begin_like(self, name: str) -> None:
        """Let what is written come of what has been written as `name`."""
        self._like = self._written[name]

    def add(
        self, opcode: str, shape: AnyShape, operands: Sequence[str] = (), /, **attrs: Attribute
    ) -> str:
        """Write an instruction and return its name."""
        return self._write(opcode, shape, operands, attrs, None)

    def parameter(self, shape: AnyShape, number: int) -> str:
        """Write a parameter."""
        return self._write("parameter", shape, (), {}, number)

    def _write(
        self,
        opcode: str,
        shape: AnyShape,
        operands: Sequence[str],
        attrs: dict[str, Attribute],
        payload: int | Literal | None,
    ) -> str:
        like = self._like
        if like is not None and "metadata" in like.attrs:
            attrs = {**attrs, "metadata": like.attrs["metadata"]}
        name = self._names.fresh(f"{like.name}.{opcode}" if like else opcode)
        span = like.span if like else None
        return self._put(Instruction(name, opcode, shape, tuple(operands), attrs, payload, span))

    def _put(self, made: Instruction) -> str:
        self.lines.append(made)
        self._written[made.name] = made
        return made.name

    def keep(
        self,
        instr: Instruction,
        operands: Sequence[str],
        sizes: Mapping[Place, str] | None = None,
        attrs: Mapping[str, Attribute] | None = None,
    ) -> Value:
        """Write `instr` on whole arrays, under its own name."""
        shape = whole(instr.shape)
        held = instr.payload
        if isinstance(held, Literal) and isinstance(shape, Shape):
            held = replace(held, shape=shape)
        return self.named(
            instr, instr.opcode, shape, operands, sizes or {}, attrs or instr.attrs, held
        )

    def named(
        self,
        instr: Instruction,
        opcode: str,
        shape: AnyShape,
        operands: Sequence[str],
        sizes: Mapping[Place, str],
        attrs: Mapping[str, Attribute],
        payload: int | AnyLiteral | None = None,
    ) -> Value:
        """Write an instruction that has the name of `instr`."""
        made = Instruction(instr.name, opcode, shape, tuple(operands), attrs, payload, instr.span)
        self._put(made)
        return Value(instr.name, shape, sizes)

    def stands(self, instr: Instruction, name: str, sizes: Mapping[Place, str]) -> Value:
        """Let an array of the dimensions of `instr` be known by the name of `instr`."""
        kept = ("metadata", "sharding", "frontend_attributes", "control-predecessors")
        attrs = {key: instr.attrs[key] for key in kept if key in instr.attrs}
        return self.named(instr, "reshape", whole(instr.shape), [name], sizes, attrs)

    def operand(self, value: Value) -> str:
        """Return the name of the value without what extends it."""
        if not value.extended:
            return value.name
        if value.name not in self._wholes:
            self._wholes[value.name] = self.add("tuple", value.shape, self.parts(value))
        return self._wholes[value.name]

    def operands(self, values: Sequence[Value]) -> list[str]:
        """Return the names of values as operands."""
        return [self.operand(value) for value in values]

    def parts(self, value: Value) -> list[str]:
        """Take a tuple apart; an array has one part, itself."""
        if not isinstance(value.shape, TupleShape):
            return [value.name]
        made = self._written[value.name]
        if made.opcode == "tuple" and not value.extended:
            return list(made.operands)
        return [
            self.add("get-tuple-element", shape, [value.name], index=k)
            for k, shape in enumerate(value.shape.parts)
        ]

    # scalars

    def scalar(self, shape: Shape, value: Array) -> str:
        """Return a constant of the element type of `shape`."""
        held = np.asarray(value).astype(shape.dtype.numpy)
        key = (shape.dtype.name, held.tobytes())
        if key not in self._numbers:
            one = Shape(shape.dtype)
            self._numbers[key] = self._write("constant", one, (), {}, Literal(one, held))
        return self._numbers[key]

    def known(self, name: str) -> int | None:
        """Return the value of a size if it is one that was written as a constant."""
        held = self._written[name].payload
        if not isinstance(held, Literal) or held.array is None:
            return None
        return int(held.array)

    def number(self, value: int) -> str:
        """Return a size that is known."""
        return self.scalar(SIZE, np.asarray(value))

    def count(self, opcode: str, left: str, right: str | int) -> str:
        """Compute with sizes."""
        other = self.number(right) if isinstance(right, int) else right
        return self.add(opcode, SIZE, [left, other])

    def holds(self, left: str, direction: str, right: str | int) -> str:
        """Compare sizes."""
        other = self.number(right) if isinstance(right, int) else right
        return self.add("compare", Shape(PRED), [left, other], direction=direction)

    def size_along(self, value: Value, dim: int) -> str:
        """Return the size of an array along a dimension."""
        size = value.along.get(dim)
        return self.number(value.array.dims[dim]) if size is None else size

    # arrays

    def spread(self, scalar: str, shape: Shape) -> str:
        """Return an array of one value."""
        return self.add("broadcast", shape, [scalar], dimensions=()) if shape.dims else scalar

    def zeros(self, shape: Shape) -> str:
        """Return an array of zeros."""
        return self.spread(self.scalar(shape, np.asarray(0)), shape)

    def inside(self, shape: Shape, sizes: Mapping[int, str]) -> str:
        """Return pred[...]: which elements lie within the sizes."""
        numbers, flags = _of(shape, "s32"), _of(shape, "pred")
        found = [
            self.add(
                "compare",
                flags,
                [self.add("iota", numbers, iota_dimension=dim), self.spread(size, numbers)],
                direction="LT",
            )
            for dim, size in sorted(sizes.items())
        ]
        flag = found[0]
        for other in found[1:]:
            flag = self.add("and", flags, [flag, other])
        return flag

    def masked(self, name: str, shape: Shape, sizes: Mapping[int, str], fill: str) -> str:
        """Return the array with a scalar in place of what lies outside the sizes."""
        if not sizes:
            return name
        blank = self.spread(fill, shape)
        return self.add("select", shape, [self.inside(shape, sizes), name, blank])

    def shifted(self, name: str, shape: Shape, dim: int, start: str) -> str:
        """Return the array with its elements from `start` on in front, along one dimension."""
        count = shape.dims[dim]
        padding = tuple(PaddingDim(0, count if d == dim else 0) for d in range(shape.rank))
        dims = tuple(2 * n if d == dim else n for d, n in enumerate(shape.dims))
        zero, first = self.scalar(shape, np.asarray(0)), self.number(0)
        long = self.add("pad", Shape(shape.dtype, dims), [name, zero], padding=padding)
        starts = [start if d == dim else first for d in range(shape.rank)]
        row = Shape(shape.dtype, shape.dims)
        return self.add("dynamic-slice", row, [long, *starts], dynamic_slice_sizes=shape.dims)


def _of(shape: Shape, dtype: str) -> Shape:
    return Shape(DTYPES[dtype], shape.dims, shape.layout)
