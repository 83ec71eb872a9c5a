"""Writes instructions of new names into a module that has others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hlo2graph.hlo import AnyShape, Attribute, Computation, Instruction, Literal, Module, Shape


def all_names(module: Module) -> set[str]:
    """Return the names of all computations and instructions."""
    computations = module.computations.values()
    return {c.name for c in computations} | {i.name for c in computations for i in c.instructions}


@dataclass(slots=True)
class Writer:
    """Collects the instructions of a computation, each of a name that no other has."""

    stem: str
    taken: set[str]
    lines: list[Instruction] = field(default_factory=list)

    def add(
        self, opcode: str, shape: AnyShape, operands: Sequence[str] = (), /, **attrs: Attribute
    ) -> str:
        """Write an instruction and return its name."""
        return self._write(opcode, shape, tuple(operands), attrs, None)

    def parameter(self, shape: AnyShape, number: int) -> str:
        """Write a parameter."""
        return self._write("parameter", shape, (), {}, number)

    def constant(self, shape: Shape, value: int) -> str:
        """Write a scalar constant."""
        scalar = Shape(shape.dtype)
        return self.literal(Literal(scalar, np.full((), value).astype(scalar.dtype.numpy)))

    def literal(self, literal: Literal) -> str:
        """Write a constant."""
        return self._write("constant", literal.shape, (), {}, literal)

    def _write(
        self,
        opcode: str,
        shape: AnyShape,
        operands: tuple[str, ...],
        attrs: Mapping[str, Attribute],
        payload: int | Literal | None,
    ) -> str:
        name = fresh(f"{self.stem}.{opcode}", self.taken)
        self.lines.append(Instruction(name, opcode, shape, operands, attrs, payload))
        return name

    def parts(self, whole: str, shapes: Sequence[AnyShape]) -> list[str]:
        """Take a tuple apart, and return the names of its parts."""
        return [
            self.add("get-tuple-element", shape, [whole], index=k) for k, shape in enumerate(shapes)
        ]

    def ended(self, root: str, name: str) -> Computation:
        """Return the computation that ends with `root`."""
        return Computation(name, tuple(self.lines), root)


def fresh(stem: str, taken: set[str]) -> str:
    """Return a name like `stem` that is not in `taken`, and add it there."""
    name, count = stem, 0
    while name in taken:
        count += 1
        name = f"{stem}.{count}"
    taken.add(name)
    return name
