"""Simplification: what is known, moves nothing, is computed twice or used by nobody goes away.

In and out: a Module of the same meaning, whose results have the same bits, but for sums of products
that a machine takes in another order (see dots). Every computation that becomes thunks is worked
through once, each instruction again only when an operand or its users change. The rules are in the
tables below, by opcode; each makes its instruction cheaper or takes it away, so that they come to
an end. What has a side effect or a control dependency stays as it is, and so do the insides of
kernels and the layout of every array that remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.views import same_places
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.inline_calls import used_computations
from hlo2graph.passes.rules.algebra import ALGEBRA
from hlo2graph.passes.rules.choices import CHOICES
from hlo2graph.passes.rules.cuts import CUTS
from hlo2graph.passes.rules.dots import DOTS
from hlo2graph.passes.rules.fold_constants import fold, unspread
from hlo2graph.passes.rules.reductions import REDUCTIONS
from hlo2graph.passes.rules.repeats import Regions, Repeats
from hlo2graph.passes.rules.shapes import SHAPES
from hlo2graph.passes.rules.tuples import TUPLES
from hlo2graph.passes.rules.updates import dynamic_update_slice
from hlo2graph.passes.rules.values import Found, Rule
from hlo2graph.passes.sequences import sequences

RULES: Mapping[str, Rule] = {
    **ALGEBRA,
    **CHOICES,
    **CUTS,
    **DOTS,
    **REDUCTIONS,
    **SHAPES,
    **TUPLES,
    "constant": unspread,
    "dynamic-update-slice": dynamic_update_slice,
}


def simplify(module: Module) -> Module:
    """Return `module` simplified."""
    effects = with_effects(module.computations)
    regions = Regions(module.computations)
    stepped = sequences(module)
    computations = {
        name: simplified(Draft(computation, module.computations, effects), regions)
        if name in stepped
        else computation
        for name, computation in module.computations.items()
    }
    if all(computations[name] is held for name, held in module.computations.items()):
        return module
    return used_computations(replace(module, computations=computations))


def simplified(draft: Draft, regions: Regions) -> Computation:
    """Return the computation of `draft` simplified."""
    repeats = Repeats(regions)
    pending = dict.fromkeys(draft.instructions)
    while pending:
        draft.touched = {}
        for name in pending:
            draft.drop_if_dead(name)
            if name in draft:
                _step(draft, draft[name], repeats)
        pending = draft.touched
    return draft.done()


def _step(draft: Draft, instr: Instruction, repeats: Repeats) -> None:
    """Apply one rule to one instruction, if one applies."""
    if not draft.is_pure(instr) or not _is_known(draft, instr):
        return
    found = _found(draft, instr) or repeats.earlier(draft, instr)
    if isinstance(found, Instruction):
        draft.become(instr.name, found)
    elif found is not None and same_places(draft[found].shape, instr.shape):
        draft.redirect(instr.name, found)


def _found(draft: Draft, instr: Instruction) -> Found:
    rule = RULES.get(instr.opcode)
    return (rule(draft, instr) if rule else None) or fold(draft, instr)


def _is_known(draft: Draft, instr: Instruction) -> bool:
    """Tell whether all sizes are known before the program runs."""
    return is_settled(instr.shape) and all(is_settled(o.shape) for o in draft.operands(instr))
