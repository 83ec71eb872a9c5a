"""To which narrower floats a program rounds what it computes on the way to each result.

A f32 result that was once a sum rounded to f16 is as near as f16 allows: right implementations add
in other orders, so that the sum's rounding may fall to the other side.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.hlo import DTYPES, Computation, DType, Instruction, Module
from hlo2graph.inspect.compare import TOLERANCES, Tolerance
from hlo2graph.inspect.reference import sources_of_result

_GIVEN = frozenset({"parameter", "constant", "iota"})
_MOVING = frozenset(
    {
        *("bitcast", "broadcast", "concatenate", "copy", "dynamic-slice", "dynamic-update-slice"),
        *("gather", "get-tuple-element", "opt-barrier", "pad", "reshape", "reverse"),
        *("select", "slice", "transpose", "tuple"),
    }
)

Rounded = frozenset[DType]  # types of floats, of which the widest say nothing new
_COMPUTED: Rounded = frozenset({DTYPES["f64"]})  # of what a computation is called with


def narrowed_tolerances(module: Module, tolerances: list[Tolerance]) -> list[Tolerance]:
    """Return the tolerances of the result's leaves, or those of what they were rounded to."""
    rounded = _by_leaf(module)
    assert len(rounded) == len(tolerances)
    return [_widest(t, types) for t, types in zip(tolerances, rounded, strict=True)]


def _widest(tolerance: Tolerance, types: Rounded) -> Tolerance:
    if tolerance.is_exact:
        return tolerance
    found = [tolerance, *(TOLERANCES[t.name] for t in types)]
    return Tolerance(max(t.relative for t in found), max(t.absolute for t in found))


def _by_leaf(module: Module) -> list[Rounded]:
    inside: dict[str, Rounded] = {}
    for name, computation in module.computations.items():  # callees come first
        if computation is not module.entry:
            inside[name] = frozenset().union(*_traced(computation, inside, _COMPUTED).values())
    traced = _traced(module.entry, inside, frozenset())
    return [traced[name] for name in sources_of_result(module)]


def _traced(
    computation: Computation, inside: Mapping[str, Rounded], parameters: Rounded
) -> dict[str, Rounded]:
    """Return for each instruction to which floats what it depends on was rounded.

    None of what is given, moved or only converted has been: these are the same everywhere.
    """
    found: dict[str, Rounded] = {}
    for instr in computation.instructions:
        before: Rounded = frozenset().union(*(found[o] for o in instr.operands))
        if instr.opcode == "parameter":
            before = parameters
        called = (inside[name] for name in instr.called())
        found[instr.name] = before.union(_own(instr, before), *called)
    return found


def _own(instr: Instruction, before: Rounded) -> Rounded:
    is_same = instr.opcode in _GIVEN | _MOVING or (instr.opcode == "convert" and not before)
    if is_same:
        return frozenset()
    return frozenset(s.dtype for s in instr.shape.leaves() if s.dtype.name in TOLERANCES)
