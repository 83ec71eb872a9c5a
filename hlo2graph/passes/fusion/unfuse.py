"""Take fusions apart: each becomes a call, for `inline_calls` to take in.

In and out: a Module of the same meaning. For modules that XLA has fused and that are to be fused
by our own rule; and for fusions, written by whomever, that no one kernel can be.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Kind, Module
from hlo2graph.ops.region import SideBySide, own_root, region_of, stands_alone
from hlo2graph.passes.sequences import STEPPED, sequences

_NO_DATA = frozenset({Kind.TOKEN, Kind.OPAQUE})


def unfuse(module: Module) -> Module:
    """Return `module` with calls in the place of the fusions that would be thunks."""
    stepped = sequences(module)
    computations = {
        name: _with_calls(computation) if name in stepped else computation
        for name, computation in module.computations.items()
    }
    return replace(module, computations=computations)


def unfuse_middles(module: Module) -> Module:
    """Return `module` with calls in the place of the fusions that no kernel can be.

    Such a fusion has in its middle what needs a kernel of its own: a sort, say, whose result it
    turns around. Or something in it becomes thunks: a loop. Or it takes or gives tokens, or gives
    nothing. What it calls becomes thunks, the fusions in it too where they can be kernels.
    """
    computations, changed = dict(module.computations), False
    pending, seen = [module.entry_name], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        held = computations[name].instructions
        kept = tuple(_as_call(i) if _is_parted(module, i) else i for i in held)
        if any(now is not before for now, before in zip(kept, held, strict=True)):
            changed = True
            computations[name] = replace(computations[name], instructions=kept)
        pending += [called for i in kept if i.opcode in STEPPED for called in i.called()]
    return replace(module, computations=computations) if changed else module


def _is_parted(module: Module, instr: Instruction) -> bool:
    if instr.opcode != "fusion":
        return False
    called = module.computations[str(instr.attrs["calls"])]
    given = (leaf for p in called.parameters for leaf in p.shape.leaves())
    made = tuple(instr.shape.leaves())
    if not made or any(leaf.dtype.kind in _NO_DATA for leaf in (*given, *made)):
        return True
    return not _is_kernel(module, called.name)


def _is_kernel(module: Module, name: str, *, is_alone: bool = True) -> bool:
    """Tell whether a computation can be a kernel, or where it is not alone, a part of one."""
    computation = module.computations[name]
    own = own_root(computation) if is_alone else None
    if any(stands_alone(i) and i is not own for i in computation.instructions):
        return False
    parts = [i for i in computation.instructions if i.opcode in ("call", "fusion")]
    if not parts:
        return True
    region = region_of(computation)
    beside = region.parts if isinstance(region, SideBySide) else ()
    return all(_is_kernel(module, next(i.called()), is_alone=i.name in beside) for i in parts)


def _with_calls(computation: Computation) -> Computation:
    return replace(computation, instructions=tuple(map(_as_call, computation.instructions)))


def _as_call(instr: Instruction) -> Instruction:
    if instr.opcode != "fusion":
        return instr
    dropped = ("kind", "calls", "output_to_operand_aliasing")
    attrs = {"to_apply": instr.attrs["calls"]}
    attrs |= {name: held for name, held in instr.attrs.items() if name not in dropped}
    return replace(instr, opcode="call", attrs=attrs)
