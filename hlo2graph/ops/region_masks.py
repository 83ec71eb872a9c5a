"""Which scores of attention are not looked at: where masks end, told by one key of many.

A mask chooses between scores and another value. Where the predicate only falls along the keys, or
only rises, as that of a causal mask does, none of some neighbouring keys is seen if the first, or
the last of them is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hlo2graph.hlo import Computation, Instruction, Literal, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import integer, integers

MOST_SHIFT = 1 << 24  # of what is added to numbers of rows and keys, which then does not wrap

Places: TypeAlias = tuple[int | None, ...]
"""For each dimension of a value the one of the scores that it is; None where its size is 1."""


@dataclass(frozen=True, slots=True)
class Mask:
    """The select `chosen`: a score where its predicate is `seen`, else one scalar, `hidden`.

    places: where the predicate's dimensions are in the scores.
    is_first: whether the first of some keys tells that none is seen, else the last does.
    """

    chosen: str
    predicate: str
    hidden: str
    seen: bool
    places: Places
    is_first: bool


def masks_of(
    computation: Computation, order: Sequence[Instruction], places: Mapping[str, Places], key: int
) -> tuple[Mask, ...]:
    """Return the masks among what is made of the scores; `places` are those of its dimensions."""
    found, trends = list[Mask](), _Trends(computation)
    for instr in order:
        if instr.opcode != "select" or instr.name not in places:
            continue
        predicate, *choices = instr.operands
        scores = [choice in places for choice in choices]
        if predicate in places or scores.count(True) != 1:
            continue
        at = places[instr.name]
        if key not in at or _dims(computation, predicate) != _dims(computation, instr.name):
            continue
        trend = trends.of(predicate, at.index(key))
        seen, hidden = scores[0], choices[scores[0]]
        if trend and _is_one(computation, hidden):
            found.append(Mask(instr.name, predicate, hidden, seen, at, (trend < 0) is seen))
    return tuple(found)


def _is_one(computation: Computation, name: str) -> bool:
    """Tell whether all elements of a value are one scalar."""
    instr = computation[name]
    while instr.opcode in ("broadcast", "reshape"):
        instr = computation[instr.operands[0]]
    return not _dims(computation, instr.name)


def _dims(computation: Computation, name: str) -> tuple[int, ...]:
    shape = computation[name].shape
    assert isinstance(shape, Shape)
    return shape.dims


@dataclass(frozen=True, slots=True)
class _Trends:
    """Tells whether values rise (1), fall (-1) or stay (0) along a dimension; None if unknown.

    Of truth values, true is the larger one.
    """

    computation: Computation
    known: dict[tuple[str, int], int | None] = field(default_factory=dict)

    def of(self, name: str, dim: int) -> int | None:
        """Return the trend of a value along one of its dimensions."""
        if (name, dim) not in self.known:
            self.known[name, dim] = self._found(self.computation[name], dim)
        return self.known[name, dim]

    def _found(self, instr: Instruction, dim: int) -> int | None:
        if not isinstance(instr.shape, Shape):
            return None
        if instr.shape.dims[dim] == 1:
            return 0
        match instr.opcode:
            case "iota":
                is_along = integer(instr, "iota_dimension") == dim
                return (1 if instr.shape.dtype.name == "s32" else None) if is_along else 0
            case "broadcast" | "reshape" | "transpose":
                return self._of_moved(instr, dim)
            case opcode if OPS[opcode].elementwise:
                return self._of_computed(instr, [self.of(o, dim) for o in instr.operands])
            case _:
                return None

    def _of_moved(self, instr: Instruction, dim: int) -> int | None:
        dims = integers(instr, "dimensions", ())
        [source] = instr.operands
        if instr.opcode == "transpose":
            return self.of(source, dims[dim])
        if instr.opcode == "broadcast":
            return self.of(source, dims.index(dim)) if dim in dims else 0
        at = _same_dim(_dims(self.computation, source), _dims(self.computation, instr.name), dim)
        return None if at is None else self.of(source, at)

    def _of_computed(self, instr: Instruction, trends: Sequence[int | None]) -> int | None:
        if not any(trends):
            return None if None in trends else 0
        found: int | None = None
        match instr.opcode:
            case "not":
                found = _times(trends[0], -1)
            case "compare":
                found = _of_compare(str(instr.attrs["direction"]), *trends)
            case "and" | "or" if _is_pred(instr):
                found = _together(*trends)
            case "add" if self._adds_small(instr):
                found = _together(*trends)
            case "subtract" if self._adds_small(instr):
                found = _together(trends[0], _times(trends[1], -1))
        return found

    def _adds_small(self, instr: Instruction) -> bool:
        return all(self._is_small(self.computation[name]) for name in instr.operands)

    def _is_small(self, instr: Instruction) -> bool:
        """Tell whether a value is the number of a place, or a small constant: sums do not wrap."""
        if not isinstance(instr.shape, Shape) or instr.shape.dtype.name != "s32":
            return False
        match instr.opcode:
            case "iota":
                return max(instr.shape.dims, default=0) < MOST_SHIFT
            case "constant":
                array = instr.payload.array if isinstance(instr.payload, Literal) else None
                return array is not None and array.size == 1 and abs(int(array.item())) < MOST_SHIFT
            case "broadcast" | "reshape" | "transpose":
                return self._is_small(self.computation[instr.operands[0]])
            case _:
                return False


def _is_pred(instr: Instruction) -> bool:
    return isinstance(instr.shape, Shape) and instr.shape.dtype.name == "pred"


def _of_compare(direction: str, first: int | None, second: int | None) -> int | None:
    if direction in ("GE", "GT"):
        return _together(first, _times(second, -1))
    return _together(_times(first, -1), second) if direction in ("LE", "LT") else None


def _together(first: int | None, second: int | None) -> int | None:
    """Return the trend of what rises with both."""
    if first is None or second is None or first * second < 0:
        return None
    return first or second


def _times(trend: int | None, sign: int) -> int | None:
    return None if trend is None else sign * trend


def _same_dim(before: Sequence[int], dims: Sequence[int], dim: int) -> int | None:
    """Return which dimension before a reshape that only adds or drops sizes of 1 is `dim`."""
    live = [d for d, n in enumerate(before) if n != 1]
    if [before[d] for d in live] != [n for n in dims if n != 1]:
        return None
    return live[sum(n != 1 for n in dims[:dim])]
