"""Elements whose way to memory passes ends of arrays, and the many of them that meet none.

A stencil that leaves its borders as they were, or goes on at the other end, puts parts together
along each dimension, in each round that a kernel does. Asked for each element at each end, that is
most of the kernel's work. Almost all elements take the largest part everywhere: these are told by
one test of each dimension, and computed in one scope without a jump.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.hlo import Instruction, PaddingDim
from hlo2graph.ops.device import DeviceRule, Element, Expr, Index
from hlo2graph.ops.expect import integers

FEWEST_ENDS = 4  # that an element meets; below that it is soon asked
MOST_OUTSIDE = 0.125  # of each dimension

_SHIFTED = re.compile(
    r" *const (?:int|long long) (?P<name>i\d+) = (?P<base>\w+) (?P<sign>[-+]) (?P<by>\d+);"
)


@dataclass(slots=True)
class Interior:
    """Device rules that take the largest part, and where that is right: from, and up to.

    `met` counts what was asked so.
    """

    inside: dict[Expr, tuple[int, int]] = field(default_factory=dict)
    met: int = 0

    @property
    def rules(self) -> dict[str, DeviceRule]:
        """By opcode."""
        return {"concatenate": self._concatenate, "pad": self._pad}

    def _concatenate(self, element: Element, instr: Instruction, index: Index) -> Expr:
        along = integers(instr, "dimensions")[0]
        sizes = [element.shape(k).dims[along] for k in range(len(instr.operands))]
        widest = sizes.index(max(sizes))
        start = sum(sizes[:widest])
        self._narrow(index[along], start, start + sizes[widest])
        place = _shifted(element, index[along], -start)
        return element.operand(widest, (*index[:along], place, *index[along + 1 :]))

    def _pad(self, element: Element, instr: Instruction, index: Index) -> Expr:
        parts = instr.attrs["padding"]
        assert isinstance(parts, tuple)
        place = []
        for at, size, part in zip(index, element.shape(0).dims, parts, strict=True):
            assert isinstance(part, PaddingDim)
            if part.interior:
                self._narrow(at, 0, 0)  # every other element is padding
            elif part.low > 0 or part.high > 0:
                self._narrow(at, part.low, part.low + size)
            place.append(_shifted(element, at, -part.low))
        return element.operand(0, tuple(place))

    def _narrow(self, at: Expr, low: int, high: int) -> None:
        known = self.inside.get(at, (low, high))
        self.inside[at] = max(low, known[0]), min(high, known[1])
        self.met += 1

    def tests(self, index: Index, dims: Sequence[int], lines: Sequence[str]) -> list[Expr] | None:
        """Return what tells, of `index`, that it is inside, if almost all of `dims` is.

        `lines` are those that the rules wrote.
        """
        shifts = {
            m["name"]: (m["base"], int(m["sign"] + m["by"]))
            for m in map(_SHIFTED.match, lines)
            if m
        }
        found = {at: (0, n) for at, n in zip(index, dims, strict=True)}
        for at, (low, high) in self.inside.items():
            base, by = at, 0
            while base not in found and base in shifts:
                base, step = shifts[base]
                by += step
            if base not in found:
                return None
            found[base] = max(found[base][0], low - by), min(found[base][1], high - by)
        sizes = dict(zip(index, dims, strict=True))
        if any(
            sizes[at] - (high - low) > MOST_OUTSIDE * sizes[at] for at, (low, high) in found.items()
        ):
            return None
        ends = ((at, low, high, sizes[at]) for at, (low, high) in found.items())
        return [test for end in ends for test in _tests(*end)]


def _tests(at: Expr, low: int, high: int, size: int) -> list[Expr]:
    return [f"{at} >= {low}"] * (low > 0) + [f"{at} < {high}"] * (high < size)


def _shifted(element: Element, at: Expr, by: int) -> Expr:
    if not by:
        return at
    return element.integer(f"{at} {'-' if by < 0 else '+'} {abs(by)}")


def write_inside_first(
    emit: ElementEmitter, index: Index, dims: Sequence[int], element: Callable[[Index], None]
) -> None:
    """Write what `element` does, without jumps for what is inside, if that is worth it."""
    interior, mark = Interior(), len(emit.lines)
    with emit.block("if (true)"), emit.ruled(interior.rules):
        element(index)
    tests = None
    if interior.met >= FEWEST_ENDS:
        tests = interior.tests(index, dims, emit.lines[mark:])
    if not tests:
        del emit.lines[mark:]
        element(index)
        return
    emit.lines[mark] = emit.lines[mark].replace("true", " && ".join(tests))
    with emit.block("else"):
        element(index)
