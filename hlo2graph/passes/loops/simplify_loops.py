"""Loops: less state, work done once before them, and few rounds of little work written out.

In and out: a Module of the same meaning, whose results have the same bits. See shrink_loops, hoist
and unroll_loops for the rules; shrink_branches and choose_results for those of conditionals. The
number of rounds of a loop that stays is written into its backend_config, as XLA does, where it is
known. What all this uncovers is simplified at once. What has side effects or control dependencies
stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module, Raw
from hlo2graph.hlo.module import CALLING_ATTRS
from hlo2graph.ops.effects import with_effects
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.inline_calls import inline_calls, used_computations
from hlo2graph.passes.loops.choose_results import choose_results
from hlo2graph.passes.loops.hoist import hoist
from hlo2graph.passes.loops.shrink_branches import shrink_branches
from hlo2graph.passes.loops.shrink_loops import drop_unneeded, shrink
from hlo2graph.passes.loops.state import loop_state
from hlo2graph.passes.loops.unroll_loops import rounds_of, unroll
from hlo2graph.passes.names import Names
from hlo2graph.passes.rules.repeats import Regions
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.simplify import simplified, simplify

_NESTED = ("conditional", "while")


def simplify_loops(module: Module) -> Module:
    """Return `module` with the loops of all computations that become thunks simplified."""
    while True:
        module = _Round(module).run()
        inlined = inline_calls(module)
        if inlined is module:
            return module
        module = simplify(inlined)


class _Round:
    """Goes once through a module, inner loops first."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._effects = with_effects(module.computations)
        self._regions = Regions(module.computations)
        self._done: dict[str, Computation] = {}
        self._names = Names(module.computations)
        self._callers = Counter(
            called
            for computation in module.computations.values()
            for instr in computation.instructions
            if instr.attrs
            for called in instr.called()
        )

    def run(self) -> Module:
        """Return the module with its loops simplified."""
        stepped = sequences(self._module)
        for name, computation in self._module.computations.items():
            nested = [i.name for i in computation.instructions if i.opcode in _NESTED]
            if nested and name in stepped:
                computation = self._simplified(computation, nested)
            self._done[name] = computation
        before = self._module.computations
        if all(self._done.get(name) is held for name, held in before.items()):
            return self._module
        return used_computations(replace(self._module, computations=self._done))

    def _simplified(self, computation: Computation, nested: list[str]) -> Computation:
        draft = Draft(computation, self._done, self._effects)
        for name in nested:
            if name not in draft or not draft.is_pure(draft[name]):
                continue
            if draft[name].opcode == "while":
                self._loop(draft, draft[name])
            else:
                self._conditional(draft, draft[name])
        return simplified(draft, self._regions) if draft.changed else computation

    def _conditional(self, around: Draft, conditional: Instruction) -> None:
        names = list(conditional.called())
        drafts = [Draft(self._done[n], self._done, self._effects) for n in names]
        shrink_branches(around, conditional, drafts)
        _call(around, conditional.name, [self._put(draft) for draft in drafts])
        choose_results(around, around[conditional.name], self._done)

    def _loop(self, around: Draft, loop: Instruction) -> None:
        state = loop_state(around, loop, self._done, self._effects)
        if state is not None:
            shrink(state, self._regions)
            if loop.name not in around:
                return
            hoist(state)
            drop_unneeded(state)
            _call(around, loop.name, [self._put(state.condition), self._put(state.body)])
        loop = around[loop.name]
        rounds = rounds_of(around, loop, self._done)
        if rounds is None:
            return
        if not unroll(around, loop, rounds, self._done) and "backend_config" not in loop.attrs:
            known = Raw(f'{{"known_trip_count":{{"n":"{rounds}"}}}}')
            around.become(loop.name, replace(loop, attrs={**loop.attrs, "backend_config": known}))

    def _put(self, draft: Draft) -> str:
        """Simplify a called computation; return its name, a new one if others call it too."""
        made = simplified(draft, self._regions)
        before = made.name
        if made is self._done[before]:
            return before
        name = self._names.fresh(before) if self._callers[before] > 1 else before
        self._done[name] = replace(made, name=name)
        return name


def _call(draft: Draft, name: str, called: Sequence[str]) -> None:
    """Let an instruction call these computations, in the order of `Instruction.called`."""
    instr = draft[name]
    if list(instr.called()) == list(called):
        return
    left = iter(called)
    attrs = dict(instr.attrs)
    for attr in CALLING_ATTRS:
        held = attrs.get(attr)
        if isinstance(held, tuple):
            attrs[attr] = tuple(next(left) for _ in held)
        elif held is not None:
            attrs[attr] = next(left)
    draft.become(name, replace(instr, attrs=attrs))
