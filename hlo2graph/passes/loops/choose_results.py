"""Conditionals whose branches do little: all are computed, and the results chosen among.

A conditional is a place where a device has to wait for the choice. That takes longer than branches
of at most MOST_INSTRUCTIONS together, which give at most MOST_ELEMENTS, where they are

- light (see light): each instruction fuses with the others, so nothing is left in fusion's way;
- or small (see small), with at most MOST_KERNELS that are not light in each branch: they run side
  by side, and the choice among their results is one kernel more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hlo2graph.hlo import DTYPES, Computation, Instruction, Shape, TupleShape
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.loops.light import heavy_work, light_work, work_of
from hlo2graph.passes.loops.small import is_small
from hlo2graph.passes.rules.values import add_filled, made

MOST_INSTRUCTIONS = 64
MOST_ELEMENTS = 1 << 14
MOST_KERNELS = 4

_PRED, _S32 = Shape(DTYPES["pred"]), Shape(DTYPES["s32"])


def choose_results(
    draft: Draft, conditional: Instruction, computations: Mapping[str, Computation]
) -> bool:
    """Call all branches of a conditional and choose, if the rule says so; tell whether it did."""
    shape = conditional.shape
    parts = shape.parts if isinstance(shape, TupleShape) else (shape,)
    arrays = [part for part in parts if isinstance(part, Shape)]
    names = list(conditional.called())
    if len(arrays) < len(parts) or not is_settled(shape):
        return False
    if not _is_little(names, arrays, computations):
        return False
    calls = [
        draft.add(
            conditional, "call", computations[name].result.shape, (given,), {"to_apply": name}
        )
        for name, given in zip(names, conditional.operands[1:], strict=True)
    ]
    tests = _tests(draft, conditional, len(names))
    if isinstance(shape, Shape):
        choice = _choice(draft, conditional, tests, calls, shape)
        draft.become(conditional.name, made(conditional, "select", choice))
        return True
    chosen = []
    for number, part in enumerate(arrays):
        values = [_element(draft, call, number) for call in calls]
        choice = _choice(draft, conditional, tests, values, part)
        chosen.append(draft.add(conditional, "select", part, choice))
    draft.become(conditional.name, made(conditional, "tuple", chosen))
    return True


def _element(draft: Draft, call: str, number: int) -> str:
    shape = draft[call].shape
    assert isinstance(shape, TupleShape)
    index = {"index": number}
    return draft.add(draft[call], "get-tuple-element", shape.parts[number], (call,), index)


def _is_little(
    names: Sequence[str], arrays: Sequence[Shape], computations: Mapping[str, Computation]
) -> bool:
    if len(names) < 2 or sum(a.elements for a in arrays) > MOST_ELEMENTS:
        return False
    branches = [computations[name] for name in names]
    if sum(map(work_of, branches)) > MOST_INSTRUCTIONS:
        return False
    return all(light_work(b) is not None for b in branches) or all(
        is_small(b) and len(heavy_work(b)) <= MOST_KERNELS for b in branches
    )


def _tests(draft: Draft, conditional: Instruction, count: int) -> list[str]:
    """Return for each branch but the last what tells that it is chosen, of those that are left."""
    selector = conditional.operands[0]
    if draft.shape(selector).dtype is _PRED.dtype:
        return [selector]
    numbers = (
        add_filled(draft, conditional, _S32, np.array(k, np.int32)) for k in range(count - 1)
    )
    return [
        draft.add(conditional, "compare", _PRED, (selector, number), {"direction": "EQ"})
        for number in numbers
    ]


def _choice(
    draft: Draft,
    conditional: Instruction,
    tests: Sequence[str],
    values: Sequence[str],
    shape: Shape,
) -> tuple[str, str, str]:
    """Return the operands of the select that gives the result; the last value is for no test."""

    def spread(test: str) -> str:
        if not shape.dims:
            return test
        like = Shape(_PRED.dtype, shape.dims, shape.layout)
        return draft.add(conditional, "broadcast", like, (test,), {"dimensions": ()})

    found = values[-1]
    for test, value in reversed(list(zip(tests[1:], values[1:], strict=False))):
        found = draft.add(conditional, "select", shape, (spread(test), value, found))
    return spread(tests[0]), values[0], found
