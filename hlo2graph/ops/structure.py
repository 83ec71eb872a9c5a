"""Operations that hold a program together: parameter, constant, tuple, call, while, ...

Most of them are gone after lowering; here each still has its shape rule and its meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hlo2graph.hlo import (
    DTYPES,
    AnyLiteral,
    AnyShape,
    Instruction,
    Literal,
    Shape,
    TupleShape,
)
from hlo2graph.ops.device import INLINED
from hlo2graph.ops.device_compute import device_id
from hlo2graph.ops.device_control import choice, loop, of_scalars
from hlo2graph.ops.expect import (
    callee,
    found,
    gives,
    integer,
    refuse,
    same,
    takes,
    token,
    tuple_of,
)
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, Lowering, OpSpec

_PRED, _S32, _TOKEN = Shape(DTYPES["pred"]), Shape(DTYPES["s32"]), Shape(DTYPES["token"])
_U32 = Shape(DTYPES["u32"])


def _infer_written(instr: Instruction, _: Sequence[AnyShape], __: Computations) -> AnyShape:
    return instr.shape


def _infer_first(_: Instruction, operands: Sequence[AnyShape], __: Computations) -> AnyShape:
    return operands[0]


def _first(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> HostValue:
    return operands[0]


def _token(_: Instruction, __: Sequence[HostValue], ___: Evaluator) -> Array:
    return np.zeros((), np.uint8)


def _constant(instr: Instruction, _: Sequence[HostValue], __: Evaluator) -> HostValue:
    assert instr.payload is not None
    assert not isinstance(instr.payload, int)
    return _arrays_of(instr.payload)


def _arrays_of(literal: AnyLiteral) -> HostValue:
    if isinstance(literal, tuple):
        return tuple(_arrays_of(part) for part in literal)
    assert literal.array is not None, "an elided constant is refused before it runs"
    return literal.array


def _literals(literal: int | AnyLiteral | None) -> Iterator[Literal]:
    if isinstance(literal, tuple):
        for part in literal:
            yield from _literals(part)
    elif isinstance(literal, Literal):
        yield literal


def _why_not_constant(instr: Instruction) -> str | None:
    if any(literal.is_elided for literal in _literals(instr.payload)):
        return "has values that the text leaves out as {...}"
    return None


def _infer_tuple(_: Instruction, operands: Sequence[AnyShape], __: Computations) -> AnyShape:
    return TupleShape(tuple(operands))


def _tuple(_: Instruction, operands: Sequence[HostValue], __: Evaluator) -> HostValue:
    return tuple(operands)


def _infer_element(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    parts = tuple_of(instr, operands[0]).parts
    index = integer(instr, "index")
    if not 0 <= index < len(parts):
        refuse(instr, f"takes element {index} of a tuple of {len(parts)}")
    return parts[index]


def _element(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    return operands[0][integer(instr, "index")]


def _infer_call(instr: Instruction, operands: Sequence[AnyShape], known: Computations) -> AnyShape:
    called = callee(instr, _target(instr), known)
    takes(instr, called, operands)
    return called.result.shape


def _call(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    return evaluate(str(instr.attrs[_target(instr)]), operands)


def _target(instr: Instruction) -> str:
    return "to_apply" if instr.opcode == "call" else "calls"


def _infer_while(instr: Instruction, operands: Sequence[AnyShape], known: Computations) -> AnyShape:
    state = operands[0]
    condition, body = callee(instr, "condition", known), callee(instr, "body", known)
    takes(instr, condition, operands)
    gives(instr, condition, _PRED)
    takes(instr, body, operands)
    gives(instr, body, state)
    return state


def _while(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    condition, body = str(instr.attrs["condition"]), str(instr.attrs["body"])
    state = operands[0]
    while np.asarray(evaluate(condition, [state])).item():
        state = evaluate(body, [state])
    return state


def _branches(instr: Instruction) -> tuple[str, ...]:
    """Return the branches in the order of their arguments; of a pred, true's comes first."""
    listed = instr.attrs.get("branch_computations")
    if isinstance(listed, tuple):
        return tuple(str(name) for name in listed)
    both = (instr.attrs.get("true_computation"), instr.attrs.get("false_computation"))
    return tuple(name for name in both if isinstance(name, str))


def _infer_conditional(
    instr: Instruction, operands: Sequence[AnyShape], known: Computations
) -> AnyShape:
    selector, *given = operands
    names = _branches(instr)
    wanted = _S32 if "branch_computations" in instr.attrs else _PRED
    same(instr, selector, wanted, "the selector of such branches")
    if wanted is _PRED and len(names) != 2:
        refuse(instr, "needs branch_computations, or true_computation and false_computation")
    if not names or len(names) != len(given):
        refuse(instr, f"has {len(names)} branches, but {len(given)} arguments for them")
    branches = [found(instr, name, known) for name in names]
    for branch, argument in zip(branches, given, strict=True):
        takes(instr, branch, [argument])
        gives(instr, branch, branches[0].result.shape)
    return branches[0].result.shape


def _conditional(
    instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator
) -> HostValue:
    names = _branches(instr)
    selector = np.asarray(operands[0])
    last = len(names) - 1
    index = int(not selector) if selector.dtype == np.bool_ else int(selector)
    at = index if 0 <= index <= last else last
    return evaluate(names[at], [operands[at + 1]])


def _infer_after_all(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
    for shape in operands:
        token(instr, shape)
    return _TOKEN


def _infer_add_dependency(
    instr: Instruction, operands: Sequence[AnyShape], _: Computations
) -> AnyShape:
    token(instr, operands[1], "second operand")
    return operands[0]


def _infer_id(_: Instruction, __: Sequence[AnyShape], ___: Computations) -> Shape:
    return _U32


def _id(_: Instruction, __: Sequence[HostValue], ___: Evaluator) -> Array:
    return np.zeros((), np.uint32)


_STRUCTURE = Lowering.STRUCTURE
_ANY = (0, None)


STRUCTURE: tuple[OpSpec, ...] = (
    OpSpec("parameter", 0, _infer_written, _first, lowering=_STRUCTURE, device=INLINED),
    OpSpec(
        "constant",
        0,
        _infer_written,
        _constant,
        lowering=_STRUCTURE,
        device=INLINED,
        why_not=_why_not_constant,
    ),
    OpSpec("tuple", _ANY, _infer_tuple, _tuple, lowering=_STRUCTURE, device=INLINED),
    OpSpec(
        "get-tuple-element",
        1,
        _infer_element,
        _element,
        frozenset({"index"}),
        required=frozenset({"index"}),
        lowering=_STRUCTURE,
        device=INLINED,
    ),
    OpSpec(
        "call",
        _ANY,
        _infer_call,
        _call,
        frozenset({"to_apply", "is_composite"}),
        required=frozenset({"to_apply"}),
        lowering=_STRUCTURE,
        device=INLINED,
    ),
    OpSpec(
        "fusion",
        _ANY,
        _infer_call,
        _call,
        frozenset({"calls", "kind", "output_to_operand_aliasing"}),
        required=frozenset({"calls", "kind"}),
        device=INLINED,
    ),
    OpSpec(
        "while",
        1,
        _infer_while,
        _while,
        frozenset({"condition", "body"}),
        required=frozenset({"body", "condition"}),
        lowering=_STRUCTURE,
        device=of_scalars(loop),
    ),
    OpSpec(
        "conditional",
        (2, None),
        _infer_conditional,
        _conditional,
        frozenset({"branch_computations", "true_computation", "false_computation"}),
        lowering=_STRUCTURE,
        device=of_scalars(choice),
    ),
    OpSpec("after-all", _ANY, _infer_after_all, _token, lowering=_STRUCTURE, device=INLINED),
    OpSpec("add-dependency", 2, _infer_add_dependency, _first, lowering=_STRUCTURE, device=INLINED),
    OpSpec("opt-barrier", 1, _infer_first, _first, lowering=_STRUCTURE, device=INLINED),
    OpSpec(
        "domain",
        1,
        _infer_first,
        _first,
        frozenset({"domain"}),
        required=frozenset({"domain"}),
        lowering=_STRUCTURE,
        device=INLINED,
    ),
    OpSpec("partition-id", 0, _infer_id, _id, device=device_id),
    OpSpec("replica-id", 0, _infer_id, _id, device=device_id),
)
