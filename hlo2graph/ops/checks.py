"""What shape inference of the larger operations keeps asking; each failure is a VerifyError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, cast

from hlo2graph.errors import VerifyError
from hlo2graph.hlo import AnyShape, Computation, DType, Instruction, Kind, Shape, TupleShape
from hlo2graph.ops.spec import Array, Computations, HostValue


def fail(instr: Instruction, message: str) -> NoReturn:
    """Raise a VerifyError about `instr`."""
    raise VerifyError(f"{instr.opcode}: {message}", instr.span)


def require(instr: Instruction, holds: bool, message: str) -> None:
    """Raise a VerifyError about `instr` unless `holds`."""
    if not holds:
        fail(instr, message)


def as_arrays(instr: Instruction, operands: Sequence[AnyShape]) -> tuple[Shape, ...]:
    """Return the operands' shapes, all of which must be arrays."""
    for number, shape in enumerate(operands):
        if not isinstance(shape, Shape) or shape.dtype.kind in (Kind.TOKEN, Kind.OPAQUE):
            fail(instr, f"operand {number} must be an array, got {shape}")
    return cast("tuple[Shape, ...]", tuple(operands))


def host_arrays(operands: Sequence[HostValue]) -> tuple[Array, ...]:
    """Return the operands' values, which inference has shown to be arrays."""
    return cast("tuple[Array, ...]", tuple(operands))


def attr_int(instr: Instruction, name: str, default: int | None = None) -> int:
    """Return an integer attribute, which must be there unless it has a default."""
    held = instr.attrs.get(name, default)
    if not isinstance(held, int):
        fail(instr, f"needs the attribute {name}")
    return held


def attr_ints(
    instr: Instruction, name: str, default: tuple[int, ...] | None = ()
) -> tuple[int, ...]:
    """Return a list-of-integers attribute; with `default=None` it must be there."""
    held = instr.attrs.get(name, default)
    if not isinstance(held, tuple):
        fail(instr, f"needs the attribute {name}")
    return cast("tuple[int, ...]", held)


def attr_dims(
    instr: Instruction, name: str, rank: int, *, ordered: bool = False, needed: bool = False
) -> tuple[int, ...]:
    """Return an attribute that lists dimensions of a rank-`rank` array, each at most once."""
    dims = attr_ints(instr, name, None if needed else ())
    for dim in dims:
        require(instr, 0 <= dim < rank, f"{name} has {dim}, out of range for rank {rank}")
    require(instr, len(set(dims)) == len(dims), f"{name} names a dimension twice: {braced(dims)}")
    if ordered:
        require(instr, list(dims) == sorted(dims), f"{name} must be sorted, got {braced(dims)}")
    return dims


def braced(dims: Sequence[int]) -> str:
    """Return `{0,1}`, as HLO text has it."""
    return "{" + ",".join(map(str, dims)) + "}"


def region(instr: Instruction, attr: str, computations: Computations) -> Computation:
    """Return the computation that `attr` names."""
    name = instr.attrs.get(attr)
    if not isinstance(name, str):
        fail(instr, f"needs the attribute {attr}")
    if name not in computations:
        fail(instr, f"{attr} names the computation {name}, which is not defined")
    return computations[name]


def result_parts(shape: AnyShape) -> tuple[AnyShape, ...]:
    """Return a tuple's parts, or the array alone: a reducer may return either form."""
    return shape.parts if isinstance(shape, TupleShape) else (shape,)


def check_parameters(
    instr: Instruction, called: Computation, attr: str, expected: Sequence[DType]
) -> None:
    """Require that a region takes scalars of the expected element types, in order."""
    given = [p.shape for p in called.parameters]
    wanted = ", ".join(f"{t}[]" for t in expected)
    if len(given) != len(expected) or not all(
        isinstance(have, Shape) and not have.dims and have.dtype is want
        for have, want in zip(given, expected, strict=True)
    ):
        found = ", ".join(str(s.without_layout_text()) for s in given)
        fail(instr, f"{attr}={called.name} must take ({wanted}), it takes ({found})")


def check_reducer(
    instr: Instruction, attr: str, computations: Computations, types: Sequence[DType]
) -> None:
    """Require that a region folds scalars of `types` into accumulators of the same types."""
    called = region(instr, attr, computations)
    parts = result_parts(called.result.shape)
    if len(parts) != len(types) or not all(
        part.compatible(Shape(want)) for part, want in zip(parts, types, strict=True)
    ):
        wanted = ", ".join(f"{t}[]" for t in types)
        found = called.result.shape.without_layout_text()
        fail(instr, f"{attr}={called.name} must return ({wanted}), it returns {found}")
    check_parameters(instr, called, attr, [*types, *types])
