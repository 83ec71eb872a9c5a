"""What shape inference expects of operands, attributes and callees.

Each function returns what was asked for, or raises a VerifyError that names what was found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NoReturn, cast

from hlo2graph.errors import Note, VerifyError
from hlo2graph.hlo import DTYPES, AnyShape, Computation, DType, Instruction, Kind, Shape, TupleShape
from hlo2graph.ops.spec import Array, Computations, HostValue

PREDS = frozenset({DTYPES["pred"]})
INTEGERS = frozenset(d for d in DTYPES.values() if d.is_integer)
SIGNED = frozenset(d for d in DTYPES.values() if d.kind is Kind.SIGNED)
FLOATS = frozenset(d for d in DTYPES.values() if d.is_float)
COMPLEX = frozenset(d for d in DTYPES.values() if d.is_complex)
INEXACT = FLOATS | COMPLEX
NUMBERS = INTEGERS | INEXACT
ALL = NUMBERS | PREDS


def refuse(instr: Instruction, message: str, *notes: Note) -> NoReturn:
    """Raise the VerifyError that says `message` about `instr`."""
    raise VerifyError(f"{instr.opcode}: {message}", instr.span, notes)


def require(instr: Instruction, holds: bool, message: str) -> None:
    """Raise the VerifyError that says `message` about `instr` unless `holds`."""
    if not holds:
        refuse(instr, message)


def as_array(instr: Instruction, shape: AnyShape, what: str = "operand") -> Shape:
    """Return `shape` if it is an array's."""
    if not isinstance(shape, Shape) or shape.dtype.kind in (Kind.TOKEN, Kind.OPAQUE):
        refuse(instr, f"needs an array as its {what}, got {shape.without_layout_text()}")
    return shape


def as_arrays(instr: Instruction, shapes: Iterable[AnyShape]) -> tuple[Shape, ...]:
    """Return all `shapes` if each is an array's."""
    return tuple(as_array(instr, shape, f"operand {i}") for i, shape in enumerate(shapes))


def host_arrays(operands: Sequence[HostValue]) -> tuple[Array, ...]:
    """Return the operands' values, which inference has shown to be arrays."""
    return cast("tuple[Array, ...]", tuple(operands))


def tuple_of(instr: Instruction, shape: AnyShape, least: int = 0) -> TupleShape:
    """Return `shape` if it is a tuple of at least `least` parts."""
    if not isinstance(shape, TupleShape) or len(shape.parts) < least:
        size = f" of at least {least}" if least else ""
        refuse(instr, f"needs a tuple{size}, got {shape.without_layout_text()}")
    return shape


def token(instr: Instruction, shape: AnyShape, what: str = "operand") -> None:
    """Refuse anything but a token."""
    if not isinstance(shape, Shape) or shape.dtype.kind is not Kind.TOKEN:
        refuse(instr, f"needs a token as its {what}, got {shape.without_layout_text()}")


def written(instr: Instruction) -> Shape:
    """Return the result shape as written, which must be an array's."""
    return as_array(instr, instr.shape, "result")


def accepts(instr: Instruction, shape: Shape, dtypes: Collection[DType], wanted: str) -> None:
    """Refuse an element type outside `dtypes`; `wanted` describes them."""
    if shape.dtype not in dtypes:
        refuse(instr, f"needs {wanted}, got {shape.without_layout_text()}")


def same(instr: Instruction, found: AnyShape, expected: AnyShape, what: str, *notes: Note) -> None:
    """Refuse `found` unless it is compatible with `expected`."""
    if not found.compatible(expected):
        refuse(
            instr,
            f"expects {expected.without_layout_text()} as {what},"
            f" got {found.without_layout_text()}",
            *notes,
        )


def integer(instr: Instruction, name: str, default: int | None = None) -> int:
    """Return the integer attribute `name`."""
    value = instr.attrs.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(instr, f"needs the attribute {name}, an integer")
    return value


def word(instr: Instruction, name: str, allowed: Collection[str]) -> str:
    """Return the attribute `name`, one of the words `allowed`."""
    value = instr.attrs.get(name)
    if not isinstance(value, str) or value not in allowed:
        got = f", got {value}" if value else ""
        refuse(instr, f"needs the attribute {name}, one of {', '.join(sorted(allowed))}{got}")
    return value


def integers(
    instr: Instruction, name: str, default: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Return the attribute `name`, a list of integers in braces."""
    value = instr.attrs.get(name, default)
    if not isinstance(value, tuple):
        refuse(instr, f"needs the attribute {name}, a list of integers in braces")
    numbers = tuple(v for v in value if isinstance(v, int))
    if len(numbers) != len(value):
        refuse(instr, f"needs integers in the attribute {name}")
    return numbers


def dimensions(
    instr: Instruction, name: str, rank: int, *, ordered: bool = False, needed: bool = False
) -> tuple[int, ...]:
    """Return the attribute `name`, dimensions of an array of `rank`, each at most once."""
    dims = integers(instr, name, None if needed else ())
    distinct(instr, dims, rank, name)
    if ordered:
        require(instr, list(dims) == sorted(dims), f"{name} must be sorted, got {braced(dims)}")
    return dims


def dimension(instr: Instruction, name: str, rank: int) -> int:
    """Return the one dimension that the list attribute `name` holds."""
    dims = integers(instr, name)
    require(instr, len(dims) == 1, f"needs one dimension in the attribute {name}, got {len(dims)}")
    distinct(instr, dims, rank, name)
    return dims[0]


def distinct(instr: Instruction, dims: Sequence[int], rank: int, what: str) -> None:
    """Refuse dimension numbers that repeat or do not exist."""
    for dim in dims:
        if not 0 <= dim < rank:
            refuse(instr, f"{what} has {dim}, out of range for rank {rank}")
    if len(set(dims)) != len(dims):
        refuse(instr, f"names a dimension twice in {what}: {braced(dims)}")


def braced(dims: Sequence[int]) -> str:
    """Return `{0,1}`, as HLO text has it."""
    return "{" + ",".join(map(str, dims)) + "}"


def callee(instr: Instruction, name: str, computations: Computations) -> Computation:
    """Return the computation that the attribute `name` names."""
    value = instr.attrs.get(name)
    if not isinstance(value, str):
        refuse(instr, f"needs the attribute {name}, a computation")
    return found(instr, value, computations)


def found(instr: Instruction, name: str, computations: Computations) -> Computation:
    """Return the computation called `name`."""
    if name not in computations:
        refuse(instr, f"calls {name}, but there is no such computation")
    return computations[name]


def takes(instr: Instruction, called: Computation, shapes: Sequence[AnyShape]) -> None:
    """Refuse a call of `called` whose arguments have other shapes than its parameters."""
    parameters = called.parameters
    if len(parameters) != len(shapes):
        refuse(
            instr,
            f"passes {len(shapes)} arguments to {called.name}, which takes {len(parameters)}",
            Note(f"{called.name} is defined here", called.span),
        )
    for parameter, shape in zip(parameters, shapes, strict=True):
        if not parameter.shape.compatible(shape):
            refuse(
                instr,
                f"passes {shape.without_layout_text()} as parameter {parameter.payload} of"
                f" {called.name}, which takes {parameter.shape.without_layout_text()}",
                Note(f"{parameter.name} is defined here", parameter.span),
            )


def gives(instr: Instruction, called: Computation, expected: AnyShape) -> None:
    """Refuse a computation whose result has another shape than `expected`."""
    result = called.result
    if not result.shape.compatible(expected):
        refuse(
            instr,
            f"expects {called.name} to return {expected.without_layout_text()},"
            f" but it returns {result.shape.without_layout_text()}",
            Note(f"{result.name} is defined here", result.span),
        )


def result_parts(called: Computation) -> tuple[AnyShape, ...]:
    """Return the parts of a region's result, or the array alone: either form will do for one."""
    shape = called.result.shape
    return shape.parts if isinstance(shape, TupleShape) else (shape,)


def takes_scalars(
    instr: Instruction, called: Computation, attr: str, expected: Sequence[DType]
) -> None:
    """Refuse a region that does not take scalars of the `expected` element types, in order."""
    given = [p.shape for p in called.parameters]
    if len(given) != len(expected) or not all(
        isinstance(have, Shape) and not have.dims and have.dtype is want
        for have, want in zip(given, expected, strict=True)
    ):
        found = ", ".join(str(s.without_layout_text()) for s in given)
        refuse(instr, f"{attr}={called.name} must take ({_scalars(expected)}), it takes ({found})")


def folds(
    instr: Instruction, attr: str, computations: Computations, types: Sequence[DType]
) -> None:
    """Refuse a region that does not fold scalars of `types` into accumulators of those types."""
    called = callee(instr, attr, computations)
    parts = result_parts(called)
    if len(parts) != len(types) or not all(
        part.compatible(Shape(want)) for part, want in zip(parts, types, strict=True)
    ):
        found = called.result.shape.without_layout_text()
        refuse(instr, f"{attr}={called.name} must return ({_scalars(types)}), it returns {found}")
    takes_scalars(instr, called, attr, [*types, *types])


def _scalars(types: Sequence[DType]) -> str:
    return ", ".join(f"{dtype}[]" for dtype in types)


def in_total_order(instr: Instruction, dtype: DType) -> bool:
    """Tell whether a comparison is by the total order of floats; newer XLA spells it `order`."""
    total = instr.attrs.get("type") == "TOTALORDER" or instr.attrs.get("order") == "TOTAL"
    return total and dtype.is_float


def dynamic_of(*shapes: Shape) -> tuple[int, ...]:
    """Return the dimensions that are dynamic in any of `shapes`, all of one rank."""
    return tuple(sorted({dim for shape in shapes for dim in shape.dynamic}))
