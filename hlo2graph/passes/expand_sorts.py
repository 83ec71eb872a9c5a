"""Turn each call of the GPU's library for sorting into HLO's sort, whose kernel is ours.

In and out: a Module of the same meaning. Calls inside kernels stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import DTYPES, Attribute, Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.ops.custom_sort import RADIX_SORT, is_descending
from hlo2graph.ops.custom_target import result_leaves, target_of
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.writer import Writer, all_names, fresh

_PRED = Shape(DTYPES["pred"])


def expand_sorts(module: Module) -> Module:
    """Return `module` with a sort for each call of a radix sort."""
    stepped = sequences(module)
    sorting = {
        name
        for name, computation in module.computations.items()
        if name in stepped and any(map(_sorts, computation.instructions))
    }
    if not sorting:
        return module
    taken = all_names(module)
    computations: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        if name in sorting:
            kept: list[Instruction] = []
            for instr in computation.instructions:
                if not _sorts(instr):
                    kept.append(instr)
                    continue
                comparator = _comparator(instr, taken)
                computations[comparator.name] = comparator
                kept += _sorted(instr, comparator.name, taken)
            computations[name] = replace(computation, instructions=tuple(kept))
        else:
            computations[name] = computation
    return replace(module, computations=computations)


def _sorts(instr: Instruction) -> bool:
    return (
        instr.opcode == "custom-call"
        and target_of(instr) == RADIX_SORT
        and is_descending(instr) is not None
    )


def _comparator(instr: Instruction, taken: set[str]) -> Computation:
    """Return the computation that tells whether one key goes before another; zeros are equal."""
    write = Writer(f"{instr.name}.order", taken)
    types = [leaf.dtype for leaf in result_leaves(instr)[: len(instr.operands)]]
    names = [
        write.parameter(Shape(dtype), 2 * k + side)
        for k, dtype in enumerate(types)
        for side in (0, 1)
    ]
    keys = names[:2]
    attrs: dict[str, Attribute] = {"direction": "GT" if is_descending(instr) else "LT"}
    if types[0].is_float:
        zero = write.constant(Shape(types[0]), 0)
        keys = [write.add("add", Shape(types[0]), [key, zero]) for key in keys]
        attrs["type"] = "TOTALORDER"
    root = write.add("compare", _PRED, keys, **attrs)
    return write.ended(root, fresh(f"{instr.name}.comparator", taken))


def _sorted(instr: Instruction, comparator: str, taken: set[str]) -> list[Instruction]:
    """Return the instructions that stand for a call."""
    write, leaves = Writer(instr.name, taken), result_leaves(instr)
    count = len(instr.operands)
    shape = leaves[0] if count == 1 else TupleShape(leaves[:count])
    attrs: dict[str, Attribute] = {
        "dimensions": (leaves[0].rank - 1,),
        "is_stable": True,
        "to_apply": comparator,
    }
    attrs |= {k: v for k, v in instr.attrs.items() if k in ("control-predecessors", "metadata")}
    found = write.add("sort", shape, instr.operands, **attrs)
    parts = [found] if count == 1 else write.parts(found, leaves[:count])
    parts += [
        write.add("broadcast", leaf, [write.constant(leaf, 0)], dimensions=())
        for leaf in leaves[count:]
    ]
    whole = Instruction(instr.name, "tuple", instr.shape, tuple(parts), span=instr.span)
    return [*(replace(i, span=instr.span) for i in write.lines), whole]
