"""Rewriting the loops of the computations that become thunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module
from hlo2graph.ops.effects import with_effects
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.inline_calls import inline_calls
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.simplify import simplify


def redraft_loops(
    module: Module, rewrite: Callable[[Draft, Instruction], Iterable[Computation]]
) -> Module:
    """Return `module` with each loop rewritten that has no effects; itself if none is.

    `rewrite` changes a loop where it stands, and gives the computations that it then needs. What
    these call is inlined, and all simplified.
    """
    stepped = sequences(module)
    effects = with_effects(module.computations)
    done: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        loops = [i.name for i in computation.instructions if i.opcode == "while"]
        if loops and name in stepped:
            draft = Draft(computation, module.computations, effects)
            for loop in loops:
                if loop in draft and draft.is_pure(draft[loop]):
                    done |= {made.name: made for made in rewrite(draft, draft[loop])}
            computation = draft.done()
        done[name] = computation
    if len(done) == len(module.computations):
        return module
    return simplify(inline_calls(replace(module, computations=done)))
