"""Loops: less state, work done once before them, and few rounds of little work written out.

In and out: a Module of the same meaning, whose results have the same bits. See shrink_loops, hoist
and unroll_loops for the rules. The number of rounds of a loop that stays is written into its
backend_config, as XLA does, where it is known. What all this uncovers is simplified at once. Loops
with side effects and control dependencies stay as they are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module, Raw
from hlo2graph.ops.effects import with_effects
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.hoist import hoist
from hlo2graph.passes.inline_calls import inline_calls, used_computations
from hlo2graph.passes.loop_state import loop_state
from hlo2graph.passes.repeats import Regions
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.shrink_loops import drop_unneeded, shrink
from hlo2graph.passes.simplify import simplified, simplify
from hlo2graph.passes.unroll_loops import rounds_of, unroll


def simplify_loops(module: Module) -> Module:
    """Return `module` with the loops of all computations that become thunks simplified."""
    while any(i.opcode == "while" for c in module.computations.values() for i in c.instructions):
        round_ = _Round(module)
        module = round_.run()
        if not round_.unrolled:
            break
        module = simplify(inline_calls(module))
    return module


class _Round:
    """Goes once through a module, inner loops first."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._effects = with_effects(module.computations)
        self._regions = Regions(module.computations)
        self._done: dict[str, Computation] = {}
        self._callers = Counter(
            called
            for computation in module.computations.values()
            for instr in computation.instructions
            if instr.attrs
            for called in instr.called()
        )
        self.unrolled = False

    def run(self) -> Module:
        """Return the module with its loops simplified."""
        stepped = sequences(self._module)
        for name, computation in self._module.computations.items():
            loops = [i.name for i in computation.instructions if i.opcode == "while"]
            if loops and name in stepped:
                computation = self._simplified(computation, loops)
            self._done[name] = computation
        before = self._module.computations
        if all(self._done.get(name) is held for name, held in before.items()):
            return self._module
        return used_computations(replace(self._module, computations=self._done))

    def _simplified(self, computation: Computation, loops: list[str]) -> Computation:
        draft = Draft(computation, self._done, self._effects)
        for name in loops:
            if name in draft and draft.is_pure(draft[name]):
                self._loop(draft, draft[name])
        return simplified(draft, self._regions) if draft.changed else computation

    def _loop(self, around: Draft, loop: Instruction) -> None:
        state = loop_state(around, loop, self._done, self._effects)
        if state is not None:
            shrink(state, self._regions)
            if loop.name not in around:
                return
            hoist(state)
            drop_unneeded(state)
            self._put(around, loop.name, "body", simplified(state.body, self._regions))
            self._put(around, loop.name, "condition", simplified(state.condition, self._regions))
        loop = around[loop.name]
        rounds = rounds_of(around, loop, self._done)
        if rounds is None:
            return
        if unroll(around, loop, rounds, self._done):
            self.unrolled = True
        elif "backend_config" not in loop.attrs:
            known = Raw(f'{{"known_trip_count":{{"n":"{rounds}"}}}}')
            around.become(loop.name, replace(loop, attrs={**loop.attrs, "backend_config": known}))

    def _put(self, around: Draft, loop: str, role: str, made: Computation) -> None:
        """Let a loop use a computation made of its own: a new one where others call that."""
        before = str(around[loop].attrs[role])
        if made is self._done[before]:
            return
        name = before
        if self._callers[before] > 1:
            name = self._fresh(before)
            made = replace(made, name=name)
            attrs = {**around[loop].attrs, role: name}
            around.become(loop, replace(around[loop], attrs=attrs))
        self._done[name] = made

    def _fresh(self, stem: str) -> str:
        count = 1
        while (name := f"{stem}.{count}") in self._done or name in self._module.computations:
            count += 1
        return name
