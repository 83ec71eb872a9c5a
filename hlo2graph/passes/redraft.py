"""Rewriting the computations of a module that become thunks and hold certain opcodes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from hlo2graph.hlo import Computation, Module
from hlo2graph.ops.effects import with_effects
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.sequences import sequences


def redraft(
    module: Module, opcodes: str | Collection[str], rewrite: Callable[[Draft], Computation]
) -> Module:
    """Return `module` with what `rewrite` makes of each such computation; itself if unchanged."""
    wanted = {opcodes} if isinstance(opcodes, str) else opcodes
    held = {
        name
        for name in sequences(module)
        if any(i.opcode in wanted for i in module.computations[name].instructions)
    }
    if not held:
        return module
    effects = with_effects(module.computations)
    computations = {
        name: rewrite(Draft(computation, module.computations, effects))
        if name in held
        else computation
        for name, computation in module.computations.items()
    }
    if all(computations[name] is before for name, before in module.computations.items()):
        return module
    return replace(module, computations=computations)
