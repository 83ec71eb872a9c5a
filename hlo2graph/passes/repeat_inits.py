"""Fold an initial value in as often as XLA does on the CPU.

In and out: a Module of the same meaning, for HLO leaves open how often an initial value is folded
in: it is to be neutral, and then that is all the same. XLA on the CPU folds more than 32 elements
in windows of 32, each begun from the initial value, and then what the windows gave in the same way.
For the results to be XLA's, a value that is not known to be neutral is replaced by the neutral one,
and joins the result as many times as it would have been there. Of minima and the like, which any
number of times changes no more than once does, nothing is rewritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from hlo2graph.hlo import Computation, DType, Instruction, Kind, Literal, Module, Shape
from hlo2graph.hlo.dtype import DTYPES
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.folding import UFUNCS, identity_of, windows_of
from hlo2graph.ops.scalar_region import binary_reducer
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.rules.values import constant, made, numbers

_REPEATED = frozenset({"add", "multiply", "xor"})
_WHOLE = 4096  # elements from which on XLA adds up floats of 32 and 64 bits in another way
_POWERS = 64  # the least number that no power of integers is of
_SPREAD = frozenset({"bitcast", "broadcast", "convert", "copy", "reshape"})


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A reduce whose initial value counts `times` times, by `opcode`."""

    instr: Instruction
    opcode: str
    times: int


def repeat_inits(module: Module) -> Module:
    """Return `module` with sums and products that begin from what is not neutral as XLA's do."""
    found = {name: held for name in module.computations if (held := _repeated(module, name))}
    if found:
        for name in _looped(module):
            found.pop(name, None)
    if not found:
        return module
    callers = _callers(module)
    effects = with_effects(module.computations)
    computations = dict(module.computations)
    for name, reduces in found.items():
        draft = Draft(computations[name], module.computations, effects)
        for reduce in reduces:
            instr = reduce.instr
            if instr.name in draft and draft.is_pure(instr):
                start = _source(module, callers, name, instr.operands[1])
                if not _is_neutral(start, reduce.opcode):
                    _expand(draft, reduce)
        computations[name] = draft.done()
    changed = any(computations[name] is not module.computations[name] for name in found)
    return replace(module, computations=computations) if changed else module


def _looped(module: Module) -> list[str]:
    """Return what fusions call that XLA leaves as they are: loops, where no others are written."""
    fusions = [
        instr
        for computation in module.computations.values()
        for instr in computation.instructions
        if instr.opcode == "fusion"
    ]
    if any(fusion.attrs["kind"] != "kLoop" for fusion in fusions):
        return []
    return [name for fusion in fusions for name in fusion.called()]


def _repeated(module: Module, name: str) -> list[_Repeated]:
    """Return the reduces of a computation that fold their initial value in more than once."""
    computation = module.computations[name]
    found = []
    for instr in computation.instructions:
        if instr.opcode != "reduce" or len(instr.operands) != 2:
            continue
        opcode = binary_reducer(module.computations, str(instr.attrs["to_apply"]))
        given, init = (computation[operand] for operand in instr.operands)
        if opcode not in _REPEATED or _is_neutral(init, opcode) or not is_settled(given.shape):
            continue
        times = _times(instr, computation, opcode)
        if times > 1:
            found.append(_Repeated(instr, opcode, times))
    return found


def _times(instr: Instruction, computation: Computation, opcode: str) -> int:
    """Return how often XLA folds the initial value in."""
    given, reduced = computation[instr.operands[0]], numbers(instr, "dimensions")
    shape = given.shape
    assert isinstance(shape, Shape)
    if shape.dtype.kind is Kind.PRED or not shape.elements:
        return 1
    if opcode == "add" and shape.dtype.name in ("f32", "f64") and shape.elements >= _WHOLE:
        return 1
    if given.opcode == "broadcast" and not set(reduced) & set(numbers(given, "dimensions")):
        return 1  # XLA multiplies instead
    sizes: Sequence[int] = [shape.dims[d] for d in reduced]
    if given.opcode == "reshape" and len(reduced) == shape.rank:
        source = computation[given.operands[0]].shape
        assert isinstance(source, Shape)
        sizes = source.dims  # which XLA folds as they were
    times = 1
    while windows := windows_of(sizes):
        sizes = [-(-size // width) for size, width in zip(sizes, windows, strict=True)]
        times += prod(sizes)
    return times


def _is_neutral(instr: Instruction, opcode: str) -> bool:
    """Tell whether an instruction is the neutral constant, or one that the text leaves out."""
    if instr.opcode != "constant":
        return False
    held = constant(instr)
    assert isinstance(instr.shape, Shape)
    return held is None or bool((held == identity_of(UFUNCS[opcode], instr.shape.dtype)).all())


def _source(
    module: Module, callers: Mapping[str, tuple[str, Instruction]], name: str, value: str
) -> Instruction:
    """Return what a value is spread or converted from, in whichever computation."""
    instr = module.computations[name][value]
    while True:
        if instr.opcode in _SPREAD:
            value = instr.operands[0]
        elif instr.opcode == "parameter" and name in callers:
            assert isinstance(instr.payload, int)
            name, fusion = callers[name]
            value = fusion.operands[instr.payload]
        else:
            return instr
        instr = module.computations[name][value]


def _callers(module: Module) -> Mapping[str, tuple[str, Instruction]]:
    """Return the fusions, and the computations that they are in, of what one fusion calls alone."""
    calls = [
        (called, name, instr)
        for name, computation in module.computations.items()
        for instr in computation.instructions
        for called in instr.called()
    ]
    count = Counter(called for called, _, _ in calls)
    return {
        called: (name, instr)
        for called, name, instr in calls
        if instr.opcode == "fusion" and count[called] == 1
    }


def _expand(draft: Draft, reduce: _Repeated) -> None:
    instr, opcode = reduce.instr, reduce.opcode
    shape = instr.shape
    assert isinstance(shape, Shape)
    scalar = Shape(shape.dtype)
    neutral = np.asarray(identity_of(UFUNCS[opcode], shape.dtype), shape.dtype.numpy)
    start = draft.add(instr, "constant", scalar, payload=Literal(scalar, neutral))
    attrs = {name: instr.attrs[name] for name in ("dimensions", "to_apply")}
    folded = draft.add(instr, "reduce", shape, (instr.operands[0], start), attrs)
    repeated = _folded(draft, reduce)
    if shape.dims:
        repeated = draft.add(instr, "broadcast", shape, (repeated,), {"dimensions": ()})
    draft.become(instr.name, made(instr, opcode, (folded, repeated)))


def _folded(draft: Draft, reduce: _Repeated) -> str:
    """Return the name of the initial value, folded with itself."""
    instr, init = reduce.instr, reduce.instr.operands[1]
    scalar = draft.shape(init).with_layout(None)
    if reduce.opcode == "xor":
        return init if reduce.times % 2 else draft.add(instr, "xor", scalar, (init, init))
    wide = Shape(_wide(scalar.dtype))
    if wide.dtype is not scalar.dtype:
        init = draft.add(instr, "convert", wide, (init,))
    if reduce.opcode == "add":
        folded = draft.add(instr, "multiply", wide, (init, _times_of(draft, reduce, wide)))
    else:
        folded = _power(draft, reduce, init)
    if wide.dtype is scalar.dtype:
        return folded
    return draft.add(instr, "convert", scalar, (folded,))


def _times_of(draft: Draft, reduce: _Repeated, shape: Shape) -> str:
    held = np.asarray(reduce.times).astype(shape.dtype.numpy)
    return draft.add(reduce.instr, "constant", shape, payload=Literal(shape, held))


def _power(draft: Draft, reduce: _Repeated, base: str) -> str:
    """Return the power of `base`, taken in steps: powers of integers heed six bits alone."""
    instr, times, shape = reduce.instr, reduce.times, draft.shape(base)
    if times < _POWERS:
        return draft.add(instr, "power", shape, (base, _times_of(draft, reduce, shape)))
    most = _power(draft, replace(reduce, times=_POWERS - 1), base)
    whole = _power(draft, replace(reduce, times=times // (_POWERS - 1)), most)
    rest = _power(draft, replace(reduce, times=times % (_POWERS - 1)), base)
    return draft.add(instr, "multiply", shape, (whole, rest))


def _wide(dtype: DType) -> DType:
    """Return a type that holds how often, too."""
    match dtype.kind:
        case Kind.SIGNED:
            return DTYPES["s64"]
        case Kind.UNSIGNED:
            return DTYPES["u64"]
        case Kind.FLOAT if dtype.bits < DTYPES["f32"].bits:
            return DTYPES["f32"]
        case _:
            return dtype
