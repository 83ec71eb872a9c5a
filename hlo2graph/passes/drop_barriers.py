"""Taking out optimisation barriers, once nothing is left to be kept from moving across them.

In and out: a Module of the same meaning. A barrier keeps what is computed twice on purpose from
being computed once, so that less has to be remembered; it comes behind simplification, and before
fusion, which joins what lies on both sides.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Module
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.views import same_places
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.rules.tuples import element
from hlo2graph.passes.sequences import sequences


def drop_barriers(module: Module) -> Module:
    """Return `module` without the barriers in computations that become thunks."""
    blocked = {
        name
        for name in sequences(module)
        if any(i.opcode == "opt-barrier" for i in module.computations[name].instructions)
    }
    if not blocked:
        return module
    effects = with_effects(module.computations)
    computations = {
        name: _opened(Draft(computation, module.computations, effects))
        if name in blocked
        else computation
        for name, computation in module.computations.items()
    }
    return replace(module, computations=computations)


def _opened(draft: Draft) -> Computation:
    for name in [n for n, i in draft.instructions.items() if i.opcode == "opt-barrier"]:
        barrier = draft[name]
        [given] = draft.operands(barrier)
        if draft.is_pure(barrier) and same_places(given.shape, barrier.shape):
            draft.redirect(name, given.name)
            for user in draft.users_of(given.name):
                taken = element(draft, user) if user.opcode == "get-tuple-element" else None
                if isinstance(taken, str) and draft.is_pure(user):
                    draft.redirect(user.name, taken)
    return draft.done()
