"""XLA's dynamic-slice fusions: a copy or call that works on a slice, its place read from operands.

XLA keeps the place out of what the thunk reads, and out of its graphs: it means to compute the
place on the host. The base of an update is written, and not counted as read either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo2graph.hlo import Computation, Instruction

_NAMED = re.compile(r'"name"\s*:\s*"(dynamic_slice_fusion|(dynamic_)?address_computation)"')
_FIRST_INDEX = {"dynamic-slice": 1, "dynamic-update-slice": 2}
_HEROES = frozenset({"copy", "custom-call", "dot", "fusion", "reduce-scatter", "all-gather"})


def is_dynamic_slice(instr: Instruction) -> bool:
    """Tell whether a fusion is one that XLA runs as a thunk on a slice."""
    if instr.opcode != "fusion":
        return False
    return _NAMED.search(str(instr.attrs.get("backend_config", ""))) is not None


def counted_operands(called: Computation, count: int) -> list[bool]:
    """Return for each operand of such a fusion whether XLA counts it as read."""
    counted = [False] * count
    for instr in called.instructions:
        for position, name in enumerate(instr.operands):
            source = called[name]
            is_parameter = source.opcode == "parameter" and isinstance(source.payload, int)
            if is_parameter and not _is_uncounted(instr, position):
                assert isinstance(source.payload, int)
                counted[source.payload] = True
    return counted


def _is_uncounted(instr: Instruction, position: int) -> bool:
    first = _FIRST_INDEX.get(instr.opcode)
    if first is None:
        return False
    return position >= first or (instr.opcode == "dynamic-update-slice" and position == 0)


def copies(called: Computation) -> Iterator[str]:
    """Yield the names of what does the work inside: what is left are views and slices."""
    for instr in called.instructions:
        if instr.opcode in _HEROES:
            yield instr.name
