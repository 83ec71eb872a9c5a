"""How an opcode is computed on the device: C++ for one element of its result.

A device rule is given where the element lies and asks for elements of the operands, which are
computed in place by their own rules. So one rule serves a kernel of one instruction and a fusion
of fifty. Types, and HLO's elementwise operations as functions (`hlo::add`, `hlo::tanh`), are in
the headers of backends/cuda/include.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from hlo2graph.hlo import Computation, DType, Instruction, Shape

Expr: TypeAlias = str  # C++: a local's name or a literal, so it may be used any number of times
Index: TypeAlias = tuple[Expr, ...]  # one C++ integer a dimension


class Element(Protocol):
    """The place where the code of one element is written."""

    @property
    def computations(self) -> Mapping[str, Computation]:
        """All computations that can be called."""
        ...

    def shape(self, operand: int) -> Shape:
        """Return the shape of operand number `operand`."""
        ...

    def operand(self, operand: int, index: Index = (), leaf: int = 0) -> Expr:
        """Return the element of an operand's leaf at `index`, in its dtype's compute type."""
        ...

    def leaves(self, operand: int) -> tuple[Expr, ...]:
        """Return all leaves of an operand that is a scalar, or a tuple of such."""
        ...

    def call(self, computation: str, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the result leaves of a region of scalars, given its arguments."""
        ...

    def bind(self, dtype: DType, expression: str) -> Expr:
        """Declare a constant local of `dtype`'s compute type."""
        ...

    def variable(self, dtype: DType, initial: str) -> Expr:
        """Declare a local that later lines may assign."""
        ...

    def integer(self, expression: str) -> Expr:
        """Declare a constant local of the kernel's index type."""
        ...

    def split(self, linear: Expr, dims: Sequence[int]) -> Index:
        """Return the row-major index of element number `linear` of an array of `dims`."""
        ...

    def fresh(self, stem: str) -> Expr:
        """Return a name that nothing else in the kernel has."""
        ...

    def line(self, text: str) -> None:
        """Write one statement."""
        ...

    def block(self, head: str) -> AbstractContextManager[None]:
        """Write `head {`, what the context writes, and `}`."""
        ...


DeviceRule: TypeAlias = Callable[[Element, Instruction, Index], "Expr | tuple[Expr, ...]"]


@dataclass(frozen=True, slots=True)
class ByLeaf:
    """A rule for results of several shapes: it is asked for one leaf at a time, by its number."""

    rule: Callable[[Element, Instruction, int, Index], Expr]


@dataclass(frozen=True, slots=True)
class OwnKernel:
    """The opcode needs a kernel of its own form, named here; it cannot stand inside a loop."""

    form: str


@dataclass(frozen=True, slots=True)
class NoDevice:
    """The opcode cannot run on the device, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class ByInstruction:
    """What the opcode needs depends on more than its name (a custom call's target)."""

    choose: Callable[[Instruction], DeviceRule | ByLeaf | OwnKernel | NoDevice]


Device: TypeAlias = DeviceRule | ByLeaf | OwnKernel | NoDevice | ByInstruction

INLINED = NoDevice("it is taken apart before kernels are made")
"""For the structure of programs: tuples, calls, loops."""

STRUCTURE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "fusion", "call"}
    | {"opt-barrier", "add-dependency", "domain"}
)
"""What kernels hold of a program's structure: the emitter itself walks through it."""

EMITTED = STRUCTURE | {"after-all"}  # a token has no bytes


def device_of(device: Device, instr: Instruction) -> DeviceRule | ByLeaf | OwnKernel | NoDevice:
    """Return what `instr`, whose opcode has `device`, needs."""
    return device.choose(instr) if isinstance(device, ByInstruction) else device


_NEEDS_WIDTH = frozenset(
    {"count-leading-zeros", "mulhi", "popcnt", "shift-right-arithmetic", "shift-right-logical"}
)
_WORDS_OF_CPP = frozenset({"and", "or", "xor", "not"})
_HAS_NEAR = frozenset({"exponential"})


def function(opcode: str) -> DeviceRule:
    """Return the rule that applies `hlo::opcode` to the operands' elements at the same index.

    Integers below a byte are computed in a byte and wrapped to their width after each operation.
    What is rounded to 16 bits or less may have a function of fewer instructions.
    """
    name = opcode.replace("-", "_") + ("_" if opcode in _WORDS_OF_CPP else "")

    def rule(element: Element, instr: Instruction, index: Index) -> Expr:
        arguments = ", ".join(
            [
                element.operand(k, index if element.shape(k).rank else ())
                for k in range(len(instr.operands))
            ]
        )
        assert isinstance(instr.shape, Shape)
        dtype = instr.shape.dtype
        if opcode in _HAS_NEAR and dtype.is_float and dtype.bits <= 16:
            return element.bind(dtype, f"hlo::near_{name}({arguments})")
        if not dtype.is_integer or dtype.bits >= 8:
            return element.bind(dtype, f"hlo::{name}({arguments})")
        width = f"_within<{dtype.bits}>" if opcode in _NEEDS_WIDTH else ""
        return element.bind(dtype, f"hlo::rounded<hlo::{dtype}>(hlo::{name}{width}({arguments}))")

    return rule
