"""What the compiler knows of an opcode: one `OpSpec`, all of whose rules are required."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

import numpy as np

from hlo2graph.hlo import AnyShape, Computation, Instruction
from hlo2graph.ops.device import Device

Array: TypeAlias = np.ndarray[Any, Any]
HostValue: TypeAlias = "Array | tuple[HostValue, ...]"  # a tuple-shaped result is a tuple


class Evaluator(Protocol):
    """Runs a called computation on host arrays; given to every host rule."""

    @property
    def computations(self) -> Mapping[str, Computation]:
        """All computations that can be called."""
        ...

    def operand_shapes(self, instr: Instruction) -> tuple[AnyShape, ...]:
        """Return the shapes, with layouts, of the operands of the instruction being run."""
        ...

    def __call__(self, computation: str, arguments: Sequence[HostValue]) -> HostValue:
        """Return the computation's result.

        A region of scalars (a reducer, a comparator) may be given arrays of any one shape
        instead: every instruction in it then works element by element (NumPy broadcasting).
        """
        ...


Computations: TypeAlias = Mapping[str, Computation]
Infer: TypeAlias = Callable[[Instruction, Sequence[AnyShape], Computations], AnyShape]
HostRule: TypeAlias = Callable[[Instruction, Sequence[HostValue], Evaluator], HostValue]


class Lowering(Enum):
    """What an instruction of this opcode becomes in a Program."""

    KERNEL = auto()  # one kernel thunk
    VIEW = auto()  # nothing: its result is its operand's bytes (bitcast, copy-done, ...)
    STRUCTURE = auto()  # handled by name in program.lower: tuple, call, while, async-start, ...
    COLLECTIVE = auto()  # one collective thunk
    HOST_IO = auto()  # infeed, outfeed, send, recv: planned, refused at run


Supported: TypeAlias = Callable[[Instruction], str | None]


def always(_: Instruction) -> None:
    """Every instruction of this opcode runs."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One opcode.

    arity: number of operands: an int, or (least, most) with most None for any number.
    attrs: the attribute names it takes, besides those every instruction may have.
    required: those of `attrs` without which XLA's parser takes no text; what else is needed
        follows from the shapes, and is for `infer` to say.
    infer: result shape from operand shapes; raises VerifyError with the instruction's span. The
        written shape (`instr.shape`) may be read where HLO says that it decides (broadcast,
        convert, iota, ...); layouts are ignored by the caller.
    host: the definition of correct, in NumPy. Arrays are in logical dimension order.
    lowering: what a Program makes of it.
    elementwise: result element i depends on element i of each operand only (scalars for the
        operands of lower rank that clamp and select allow).
    inplace: operands whose buffer the result may take over when the operand dies there.
    effect: has a side effect; keeps its place among all others that have.
    device: how one element of the result is computed on the device, which kernel form it needs
        instead, or why it cannot run there.
    why_not: None where this instruction can run on the host, else the reason why it cannot.
    """

    opcode: str
    arity: int | tuple[int, int | None]
    infer: Infer
    host: HostRule
    attrs: frozenset[str] = frozenset()
    lowering: Lowering = Lowering.KERNEL
    elementwise: bool = False
    inplace: tuple[int, ...] = ()
    effect: bool = False
    why_not: Supported = always
    required: frozenset[str] = field(default=frozenset(), kw_only=True)
    device: Device = field(kw_only=True)
