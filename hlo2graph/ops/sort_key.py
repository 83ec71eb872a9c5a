"""Comparators that compare one key of each element, in an order that has a place for all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo2graph.hlo import Computation, DType, Instruction, Literal, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import in_total_order
from hlo2graph.ops.spec import Computations

_BITS = 32  # of a key, at most


@dataclass(frozen=True, slots=True)
class SortKey:
    """What makes the key, of an element that is both of the comparator's; smaller keys go first.

    Or, where it does not rise, larger ones.
    """

    computation: Computation
    rises: bool

    @property
    def dtype(self) -> DType:
        """The type of the key."""
        shape = self.computation.result.shape
        assert isinstance(shape, Shape)
        return shape.dtype


def sort_key(computations: Computations, name: str) -> SortKey | None:
    """Return the key that a comparator compares, or None where it does other things."""
    comparator = computations[name]
    found = _compared(comparator, comparator.result)
    return found if found and found.dtype.bits <= _BITS else None


def sort_keys(computations: Computations, name: str) -> tuple[SortKey, ...]:
    """Return the keys that a comparator compares, each where those before it are equal.

    None of them where it does other things.
    """
    comparator, keys = computations[name], []
    root = comparator.result
    while root.opcode == "or":
        parts = _by_first_key(comparator, root)
        if parts is None:
            return ()
        key, root = parts
        keys.append(key)
    last = _compared(comparator, root)
    return (*keys, last) if last else ()


def _by_first_key(comparator: Computation, root: Instruction) -> tuple[SortKey, Instruction] | None:
    """Return the first key of `first goes before, or both are equal and the rest does`."""
    one, other = (comparator[o] for o in root.operands)
    first, rest = (one, other) if one.opcode == "compare" else (other, one)
    key = _compared(comparator, first)
    if key is None or rest.opcode != "and":
        return None
    for equal, behind in (rest.operands, rest.operands[::-1]):
        same = comparator[equal]
        if _says_equal(same, first, key):
            return key, comparator[behind]
    return None


def _says_equal(instr: Instruction, first: Instruction, key: SortKey) -> bool:
    """Tell whether an instruction says that what `first` compares is equal."""
    is_equal = instr.opcode == "compare" and instr.attrs.get("direction") == "EQ"
    ordered = key.dtype.is_integer or in_total_order(instr, key.dtype)
    return is_equal and ordered and set(instr.operands) == set(first.operands)


def _compared(comparator: Computation, root: Instruction) -> SortKey | None:
    """Return the key that one instruction compares, in an order that has a place for all."""
    direction = root.attrs.get("direction")
    if root.opcode != "compare" or direction not in ("LT", "GT"):
        return None
    key = comparator[root.operands[0]].shape
    assert isinstance(key, Shape)
    ordered = key.dtype.is_integer or in_total_order(root, key.dtype)
    sides = _sides(comparator, root.operands[0], root.operands[1])
    if not ordered or len(sides) != 1:
        return None
    made = replace(comparator, root=root.operands[0])
    return SortKey(made, rises=(direction == "LT") == (sides == {0}))


def _sides(comparator: Computation, one: str, other: str) -> set[int]:
    """Return of which elements, 0 or 1, a value is made, where another is so of the others.

    Empty where the two values are made in different ways.
    """
    sides: set[int] = set()
    seen: set[tuple[str, str]] = set()
    stack = [(one, other)]
    while stack:
        if (pair := stack.pop()) in seen:
            continue
        seen.add(pair)
        mine, theirs = (comparator[name] for name in pair)
        if mine.opcode == theirs.opcode == "parameter":
            assert isinstance(mine.payload, int)
            if theirs.payload != mine.payload ^ 1:
                return set()
            sides.add(mine.payload % 2)
        elif _is_alike(mine, theirs):
            stack += zip(mine.operands, theirs.operands, strict=True)
        else:
            return set()
    return sides


def _is_alike(one: Instruction, other: Instruction) -> bool:
    """Tell whether two instructions do the same with their operands."""
    if (one.opcode, one.shape, one.attrs) != (other.opcode, other.shape, other.attrs):
        return False
    if one.opcode == "constant":
        return one is other or _bytes_of(one) == _bytes_of(other)
    return OPS[one.opcode].elementwise


def _bytes_of(constant: Instruction) -> bytes:
    literal = constant.payload
    assert isinstance(literal, Literal)
    assert literal.array is not None
    return literal.array.tobytes()
