"""What a called region of scalars computes, so that whole arrays can go through it at once."""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.conversion import CONVERSION
from hlo2graph.ops.elementwise import ELEMENTWISE
from hlo2graph.ops.selection import SELECTION

_ELEMENTWISE = frozenset(
    spec.opcode for spec in (*ELEMENTWISE, *CONVERSION, *SELECTION) if spec.elementwise
)
_ALLOWED = _ELEMENTWISE | {
    *(
        "parameter",
        "constant",
        "bitcast",
        "bitcast-convert",
        "broadcast",
        "reshape",
        "copy",
        "tuple",
        "get-tuple-element",
    ),
    *("call", "fusion"),
}
_NAMED = _ELEMENTWISE - {"compare"}  # which an opcode says all of
_CHOOSING = frozenset({"maximum", "minimum", "and", "or", "xor"})  # which round nothing
COMMUTATIVE = _CHOOSING | {"add", "multiply"}


def is_elementwise_region(computations: Mapping[str, Computation], name: str) -> bool:
    """Tell whether computation `name` may be given arrays instead of its scalars.

    True where everything in it is a scalar or a tuple of scalars and each instruction, those of
    called computations included, works element by element.
    """
    seen, waiting = {name}, [name]
    while waiting:
        for instr in computations[waiting.pop()].instructions:
            if instr.opcode not in _ALLOWED or not _is_scalar(instr):
                return False
            fresh = set(instr.called()) - seen
            seen |= fresh
            waiting.extend(fresh)
    return True


def binary_reducer(computations: Mapping[str, Computation], name: str) -> str | None:
    """Return the opcode where computation `name` is just `opcode(p0, p1)`, else None.

    A commutative opcode counts in either order. `add` of c64 or pred is such an opcode too.
    """
    computation = computations[name]
    root = computation.result
    parameters = tuple(p.name for p in computation.parameters)
    if root.opcode not in _NAMED or len(parameters) != 2 or not _is_scalar(root):
        return None
    if root.operands == parameters:
        return root.opcode
    swapped = root.operands == parameters[::-1] and root.opcode in COMMUTATIVE
    return root.opcode if swapped else None


def index_compared(computations: Mapping[str, Computation], name: str) -> int | None:
    """Return which of several values that `name` folds is an index, of which the lower one counts.

    That is what the arg max and arg min of JAX and others look like: of equal elements they take
    the one of lower index, of two NaNs the left one, which is the first where the left one is what
    comes before.
    """
    computation = computations[name]
    numbers = {p.name: at for at, p in enumerate(computation.parameters)}
    count = len(numbers) // 2
    for instr in computation.instructions if count > 1 else ():
        if instr.opcode != "compare" or instr.attrs.get("direction") != "LT":
            continue
        one, other = (numbers.get(operand, -1) for operand in instr.operands)
        shape = computation[instr.operands[0]].shape
        is_integer = isinstance(shape, Shape) and shape.dtype.is_integer
        if is_integer and 0 <= one < count and other == one + count:
            return one
    return None


def in_any_order(computations: Mapping[str, Computation]) -> frozenset[str]:
    """Return the regions that fold to the same bits in whatever order: none that rounds."""
    opcodes = {name: binary_reducer(computations, name) for name in computations}
    return frozenset(
        name
        for name, opcode in opcodes.items()
        if opcode in _CHOOSING or (opcode in COMMUTATIVE and not _rounds(computations[name]))
    )


def _rounds(computation: Computation) -> bool:
    leaves = computation.result.shape.leaves()
    return any(leaf.dtype.is_float or leaf.dtype.is_complex for leaf in leaves)


def _is_scalar(instr: Instruction) -> bool:
    return all(leaf.dims == () for leaf in instr.shape.leaves()) and (
        not isinstance(instr.shape, Shape) or instr.shape.size > 0
    )
