"""How often a loop runs, where that can be told before it does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from hlo2graph.hlo import Computation, DType, Instruction, Kind, Literal, Shape, TupleShape

_KNOWN = re.compile(r'known_trip_count\\?"\s*:\s*\{\s*\\?"n\\?"\s*:\s*\\?"?(\d{1,18})\b')
_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}
_DEEPEST = 12  # instructions followed from a root to a counter


class Init(Protocol):
    """What a leaf of the loop state is before the first round."""

    @property
    def shape(self) -> Shape:
        """Its shape."""
        ...

    @property
    def literal(self) -> Literal | None:
        """Its value, where that is known."""
        ...


class _Affine(NamedTuple):
    """Leaf `leaf` of the loop state plus `offset`; just `offset` where leaf is None."""

    leaf: int | None
    offset: int
    dtype: DType


_Bindings: TypeAlias = Callable[[int, int], "_Affine | None"]
"""What leaf j of parameter i is."""


def trip_count(
    loop: Instruction, inits: Sequence[Init], computations: Mapping[str, Computation]
) -> int | None:
    """Return how often the body of `loop` runs, or None.

    A counter that starts at a constant, has a constant added by the body and is compared with a
    constant is counted; otherwise `known_trip_count` in the backend_config is believed.
    """
    counted = _counted(
        computations[str(loop.attrs["condition"])],
        computations[str(loop.attrs["body"])],
        inits,
        computations,
    )
    return written_count(loop) if counted is None else counted


def written_count(loop: Instruction) -> int | None:
    """Return the number of rounds that the loop's backend_config says, or None."""
    known = _KNOWN.search(str(loop.attrs.get("backend_config", "")))
    return int(known[1]) if known else None


def _counted(
    condition: Computation,
    body: Computation,
    inits: Sequence[Init],
    computations: Mapping[str, Computation],
) -> int | None:

    def state(_: int, leaf: int) -> _Affine:
        return _Affine(leaf, 0, inits[leaf].shape.dtype)

    follow = _Follow(computations)
    compared = follow.comparison(condition, state)
    if compared is None:
        return None
    direction, counter, bound = compared
    if counter.leaf is None:
        direction, counter, bound = _FLIPPED.get(direction, ""), bound, counter
    if counter.leaf is None or bound.leaf is not None:
        return None
    start = _number(inits[counter.leaf].literal)
    after = follow.leaf(body, body.root, counter.leaf, state, 0)
    if start is None or after is None or after.leaf != counter.leaf:
        return None
    return _iterations(direction, start + counter.offset, after.offset, bound.offset, counter.dtype)


def _iterations(direction: str, start: int, step: int, bound: int, dtype: DType) -> int | None:
    """Count while `start + k * step` compares so with `bound`; None if it wraps or never ends."""
    if direction in ("GT", "GE"):
        direction = {"GT": "LT", "GE": "LE"}[direction]
        sign, start, step, bound = -1, -start, -step, -bound
    else:
        sign = 1
    if direction == "LE":
        direction, bound = "LT", bound + 1
    if direction == "NE":
        exact = step != 0 and (bound - start) % step == 0 and (bound - start) // step >= 0
        return (bound - start) // step if exact else None
    if direction != "LT":
        return None
    if start >= bound:
        return 0
    if step <= 0:
        return None
    count = -((start - bound) // step)
    ends = (sign * start, sign * (start + count * step))
    return count if all(_fits(end, dtype) for end in ends) else None


def _fits(number: int, dtype: DType) -> bool:
    if dtype.kind is Kind.UNSIGNED:
        return 0 <= number < 1 << dtype.bits
    return -(1 << (dtype.bits - 1)) <= number < 1 << (dtype.bits - 1)


def _number(literal: Literal | None) -> int | None:
    """Return the value of a whole-number scalar."""
    if literal is None or literal.array is None or literal.shape.dims:
        return None
    return int(literal.array) if literal.shape.dtype.is_integer else None


class _Follow:
    """Reads scalars back to the loop state, through tuples, calls and fusions."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations

    def comparison(
        self, computation: Computation, given: _Bindings
    ) -> tuple[str, _Affine, _Affine] | None:
        """Return direction, left and right of the comparison that the computation returns."""
        for depth in range(_DEEPEST):
            root = computation.result
            if root.opcode == "compare":
                left, right = (self.leaf(computation, o, 0, given, depth) for o in root.operands)
                return (str(root.attrs["direction"]), left, right) if left and right else None
            if root.opcode not in ("call", "fusion"):
                return None
            given = self._arguments(computation, root, given, depth)
            computation = self._computations[next(root.called())]
        return None

    def leaf(
        self, computation: Computation, name: str, leaf: int, given: _Bindings, depth: int
    ) -> _Affine | None:
        """Return what leaf `leaf` of instruction `name` is, or None."""
        instr = computation[name]
        if depth == _DEEPEST:
            return None
        found: _Affine | None = None
        match instr.opcode, instr.payload:
            case "parameter", int() as number:
                found = given(number, leaf)
            case "constant", Literal() as literal:
                value = _number(literal)
                found = None if value is None else _Affine(None, value, literal.shape.dtype)
            case (("get-tuple-element" | "tuple" | "copy" | "reshape" | "opt-barrier"), _):
                operand, leaf = self._moved(computation, instr, leaf)
                found = self.leaf(computation, operand, leaf, given, depth + 1)
            case (("add" | "subtract"), _):
                found = self._sum(computation, instr, given, depth + 1)
            case (("call" | "fusion"), _):
                inner = self._arguments(computation, instr, given, depth + 1)
                callee = self._computations[next(instr.called())]
                found = self.leaf(callee, callee.root, leaf, inner, depth + 1)
            case _:
                pass
        return found

    def _sum(
        self, computation: Computation, instr: Instruction, given: _Bindings, depth: int
    ) -> _Affine | None:
        left, right = (self.leaf(computation, o, 0, given, depth) for o in instr.operands)
        if left is None or right is None:
            return None
        if instr.opcode == "subtract":
            if right.leaf is not None:
                return None
            right = right._replace(offset=-right.offset)
        if left.leaf is not None and right.leaf is not None:
            return None
        leaf = left.leaf if left.leaf is not None else right.leaf
        return _Affine(leaf, left.offset + right.offset, left.dtype)

    def _arguments(
        self, computation: Computation, call: Instruction, given: _Bindings, depth: int
    ) -> _Bindings:
        return lambda i, leaf: self.leaf(computation, call.operands[i], leaf, given, depth)

    def _moved(self, computation: Computation, instr: Instruction, leaf: int) -> tuple[str, int]:
        """Return which operand's which leaf is leaf `leaf` of an instruction that moves leaves."""
        if instr.opcode == "get-tuple-element":
            index = instr.attrs["index"]
            assert isinstance(index, int)
            whole = computation[instr.operands[0]].shape
            assert isinstance(whole, TupleShape)
            return instr.operands[0], whole.starts[index] + leaf
        for operand in instr.operands[:-1]:
            count = computation[operand].shape.leaf_count
            if leaf < count:
                return operand, leaf
            leaf -= count
        return instr.operands[-1], leaf
