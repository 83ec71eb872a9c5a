"""Convert what an operation gives before it is rounded, as XLA does on the CPU.

In and out: a Module of the same meaning, but for one rounding. XLA on the CPU computes in float32
what is to be bfloat16, and rounds each result; but a conversion of a result to float32 takes it as
it was. For the host to give what XLA gives, the conversion becomes the operation, in float32.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module, Shape
from hlo2graph.hlo.dtype import DTYPES
from hlo2graph.ops.effects import with_effects
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.rules.values import made

_ROUNDED = frozenset({"add", "atan2", "cbrt", "cosine", "divide", "erf", "exponential"}) | {
    *("exponential-minus-one", "log", "log-plus-one", "logistic", "multiply", "power", "rsqrt"),
    *("sine", "sqrt", "subtract", "tan", "tanh"),
}
_PRODUCTS = frozenset({"convolution", "dot"})
_WIDE, _NARROW = DTYPES["f32"], DTYPES["bf16"]
_OF_THE_NARROW = frozenset({"backend_config", "control-predecessors", "frontend_attributes"}) | {
    *("metadata", "result_accuracy", "sharding"),
}


def skip_roundings(module: Module) -> Module:
    """Return `module` with conversions of bfloat16 results to float32 as what gives these."""
    effects = with_effects(module.computations)
    computations = dict(module.computations)
    for name, computation in module.computations.items():
        found = [i for i in computation.instructions if _is_skipped(computation, i)]
        if found:
            draft = Draft(computation, module.computations, effects)
            for convert in found:
                if convert.name in draft and draft.is_pure(convert):
                    _widen(draft, convert)
            computations[name] = draft.done()
    changed = any(computations[name] is not held for name, held in module.computations.items())
    return replace(module, computations=computations) if changed else module


def _is_skipped(computation: Computation, instr: Instruction) -> bool:
    """Tell whether an instruction converts what an operation has just rounded."""
    if instr.opcode != "convert" or not _is(instr, _WIDE.name) or not is_settled(instr.shape):
        return False
    given = computation[instr.operands[0]]
    if not _is(given, _NARROW.name):
        return False
    if given.opcode in _PRODUCTS:
        return len(given.operands) == 2 and not given.attrs.keys() & {"algorithm", "sparsity"}
    return given.opcode in _ROUNDED


def _is(instr: Instruction, dtype: str) -> bool:
    return isinstance(instr.shape, Shape) and instr.shape.dtype.name == dtype


def _widen(draft: Draft, convert: Instruction) -> None:
    """Put the operation, of which the float32 is, into the place of the conversion."""
    given = draft[convert.operands[0]]
    operands = given.operands
    if given.opcode not in _PRODUCTS:
        operands = tuple(
            draft.add(convert, "convert", replace(draft.shape(o), dtype=_WIDE), (o,))
            for o in operands
        )
    attrs = {name: held for name, held in given.attrs.items() if name not in _OF_THE_NARROW}
    draft.become(convert.name, made(convert, given.opcode, operands, attrs))
