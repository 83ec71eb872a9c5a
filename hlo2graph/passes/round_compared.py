"""Round narrow floats at each instruction where a comparison, or another step, depends on them.

In and out: a Module of the same meaning. Kernels compute floats of at most 16 bits in float32 and
round them when they store them. So a value is one in the kernel that makes it and another in one
that reads it; and one that is made again of what the first did not store is a third. Sums are none
the worse for it. But what is compared with the largest of itself would be found smaller: where that
decides who gets a gradient, none would get any. So what the following look at is rounded by a
convert to the type that it has already, for a kernel is the rounding that HLO asks for:

- comparisons of two values, neither of them a constant, and any for equality;
- floor, ceil, round, sign, remainder, and what makes whole numbers of floats or reads their bits;
- sorts, the largest of a row with its place, and whatever else folds by comparing.

A float32 quotient that is converted to a narrow type is marked in the same way, by a convert to
float32: where nothing steps, some kernels take it by a reciprocal.

What stands in front of a product, a loop or the like is left as it is: its results are made in one
kernel and rounded there, so that there are no two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_target import target_of
from hlo2graph.ops.scalar_region import in_any_order
from hlo2graph.passes.names import Names
from hlo2graph.passes.sequences import sequences

_FOLDS = frozenset({"map", "reduce", "reduce-window", "select-and-scatter"})
_PASSES_ON = _FOLDS | {
    *("batch-norm-inference", "bitcast", "broadcast", "concatenate", "dynamic-slice"),
    *("dynamic-update-slice", "gather", "get-tuple-element", "opt-barrier", "pad", "reshape"),
    *("reverse", "slice", "transpose", "tuple"),
}
_STEPS = frozenset({"ceil", "floor", "round-nearest-afz", "round-nearest-even", "sign"}) | {
    *("bitcast-convert", "remainder", "sort", "topk"),
}
_EXACT = frozenset({"abs", "clamp", "convert", "copy", "imag", "maximum", "minimum", "negate"}) | {
    *("ceil", "floor", "real", "reduce-precision", "round-nearest-afz", "round-nearest-even"),
    *("select", "sign", "stochastic-convert"),
}
_MADE_OF_ONE = frozenset({"broadcast", "convert", "reshape"})


def round_compared(module: Module) -> Module:
    """Return `module` with narrow floats rounded where something steps as they do."""
    computations = dict(module.computations)
    exact = in_any_order(computations)
    for name in sequences(module):
        computation = computations[name]
        narrowed = _narrowed(computation)
        rounded = {
            instr.name
            for instr in _seen(computation, computations)
            if (_is_narrow(instr) and _rounds(instr, exact))
            or (instr.opcode == "divide" and instr.name in narrowed)
        }.difference(_rounded_before(computation))
        if rounded:
            computations[name] = _with_rounded(computation, rounded)
    changed = any(computations[name] is not held for name, held in module.computations.items())
    return replace(module, computations=computations) if changed else module


def _seen(
    computation: Computation, computations: Mapping[str, Computation]
) -> Iterator[Instruction]:
    """Yield what steps depend on, back to what one kernel makes for all."""
    pending = [
        operand
        for instr in computation.instructions
        if _is_step(computation, instr, computations)
        for operand in instr.operands
    ]
    found = set[str]()
    while pending:
        instr = computation[pending.pop()]
        if instr.name not in found and (
            OPS[instr.opcode].elementwise or instr.opcode in _PASSES_ON
        ):
            found.add(instr.name)
            pending += instr.operands
            yield instr


def _is_step(
    computation: Computation, instr: Instruction, computations: Mapping[str, Computation]
) -> bool:
    """Tell whether operands that differ in a last bit may make a difference of more than that."""
    match instr.opcode:
        case "compare":
            return _is_close(computation, instr)
        case "convert":
            return not any(leaf.dtype.is_float for leaf in instr.shape.leaves())
        case "custom-call":
            return target_of(instr) == "TopK"
        case opcode if opcode in _FOLDS:
            regions = (computations[name] for name in instr.called())
            return any(i.opcode == "compare" for r in regions for i in r.instructions)
        case opcode:
            return opcode in _STEPS


def _is_close(computation: Computation, compare: Instruction) -> bool:
    """Tell whether a comparison may be of values that are meant to be equal."""
    left, right = compare.operands
    known = _is_known(computation, left) or _is_known(computation, right)
    return left != right and (compare.attrs["direction"] in ("EQ", "NE") or not known)


def _is_known(computation: Computation, name: str) -> bool:
    instr = computation[name]
    while instr.opcode in _MADE_OF_ONE:
        instr = computation[instr.operands[0]]
    return instr.opcode == "constant"


def _is_narrow(instr: Instruction) -> bool:
    return isinstance(instr.shape, Shape) and (
        instr.shape.dtype.is_float and instr.shape.dtype.bits <= 16
    )


def _narrowed(computation: Computation) -> set[str]:
    """Return what is converted to narrow floats."""
    converts = (i for i in computation.instructions if i.opcode == "convert" and _is_narrow(i))
    return {i.operands[0] for i in converts}


def _rounded_before(computation: Computation) -> set[str]:
    """Return what is converted to the type that it has."""
    converts = (i for i in computation.instructions if i.opcode == "convert")
    return {i.operands[0] for i in converts if i.shape == computation[i.operands[0]].shape}


def _rounds(instr: Instruction, exact: frozenset[str]) -> bool:
    """Tell whether a result may need more bits than its type has."""
    if instr.opcode in _FOLDS:
        return not exact.issuperset(instr.called())
    is_computed = OPS[instr.opcode].elementwise or instr.opcode == "batch-norm-inference"
    return is_computed and instr.opcode not in _EXACT


def _with_rounded(computation: Computation, names: set[str]) -> Computation:
    """Return the computation with converts in the places of `names`, which have others now."""
    fresh = Names(instr.name for instr in computation.instructions)
    instructions: list[Instruction] = []
    for instr in computation.instructions:
        if instr.name not in names:
            instructions.append(instr)
            continue
        wide = replace(instr, name=fresh.fresh(f"{instr.name}.wide"))
        kept = {key: held for key, held in instr.attrs.items() if key == "metadata"}
        narrow = replace(instr, opcode="convert", operands=(wide.name,), attrs=kept)
        instructions += [wide, narrow]
    return replace(computation, instructions=tuple(instructions))
