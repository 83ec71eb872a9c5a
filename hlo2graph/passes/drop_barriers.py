"""Taking out optimisation barriers, once nothing is left to be kept from moving across them.

In and out: a Module of the same meaning. A barrier keeps what is computed twice on purpose from
being computed once, so that less has to be remembered; it comes behind simplification, and before
fusion, which joins what lies on both sides.
"""

from __future__ import annotations

from hlo2graph.hlo import Computation, Module
from hlo2graph.ops.views import same_places
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.tuples import element


def drop_barriers(module: Module) -> Module:
    """Return `module` without the barriers in computations that become thunks."""
    return redraft(module, "opt-barrier", _opened)


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
