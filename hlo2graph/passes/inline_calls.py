"""Inlining: calls are replaced with what they call, so that nothing is hidden from other passes.

In and out: a Module of the same meaning. Calls with control dependencies stay calls; so do those
of large computations called from many places, beyond MOST_COPIED instructions: lowering takes
them apart anyway. An instruction keeps its name where its new computation has none like it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hlo2graph.hlo import AnyShape, Computation, Instruction, Module, Shape
from hlo2graph.ops.views import same_places
from hlo2graph.passes.draft import controls
from hlo2graph.passes.names import Names
from hlo2graph.passes.sequences import sequences

MOST_COPIED = 1 << 15  # instructions that the copies of one computation may have together


def inline_calls(module: Module) -> Module:
    """Return `module` with the calls in computations that become thunks inlined."""
    stepped = sequences(module)
    calls = Counter(
        str(instr.attrs["to_apply"])
        for name in stepped
        for instr in module.computations[name].instructions
        if instr.opcode == "call"
    )
    if not calls:
        return module
    done: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        if name in stepped:
            computation = _Inliner(computation, done, calls).run()
        done[name] = computation
    if all(done[name] is held for name, held in module.computations.items()):
        return module
    return used_computations(replace(module, computations=done))


def used_computations(module: Module) -> Module:
    """Return `module` without the computations that its entry does not reach."""
    reached = {module.entry_name}
    pending = [module.entry_name]
    while pending:
        for instr in module.computations[pending.pop()].instructions:
            if instr.attrs:
                fresh = set(instr.called()) - reached
                reached |= fresh
                pending += fresh
    if len(reached) == len(module.computations):
        return module
    kept = {name: c for name, c in module.computations.items() if name in reached}
    return replace(module, computations=kept)


class _Inliner:
    """Takes the calls of one computation apart; those called have been through it before."""

    def __init__(
        self, computation: Computation, done: Mapping[str, Computation], calls: Counter[str]
    ) -> None:
        self._computation = computation
        self._done = done
        self._calls = calls
        self._fresh = Names(i.name for i in computation.instructions).fresh
        self._shapes: dict[str, AnyShape] = {}
        self._held = _held(computation)
        self._names: dict[str, str] = {}  # calls that are gone, and their results
        self._kept: list[Instruction] = []

    def run(self) -> Computation:
        """Return the computation without the calls that can go."""
        for instr in self._computation.instructions:
            here = _reading(instr, self._names, instr.name)
            if instr.opcode == "call" and self._can_go(here):
                self._names[instr.name] = self._inlined(here)
            else:
                self._add(here)
        if not self._names:
            return self._computation
        root = self._names.get(self._computation.root, self._computation.root)
        return replace(self._computation, instructions=tuple(self._kept), root=root)

    def _can_go(self, call: Instruction) -> bool:
        called = self._done[str(call.attrs["to_apply"])]
        copies = self._calls[called.name]
        if call.name in self._held or (
            copies > 1 and copies * len(called.instructions) > MOST_COPIED
        ):
            return False
        handed = zip(called.parameters, call.operands, strict=True)
        pairs = [(self._shapes[o], p.shape) for p, o in handed]
        return all(
            isinstance(given, Shape) or same_places(given, wanted)
            for given, wanted in (*pairs, (called.result.shape, call.shape))
        )

    def _inlined(self, call: Instruction) -> str:
        """Add what `call` calls and return the name of its result."""
        called = self._done[str(call.attrs["to_apply"])]
        names: dict[str, str] = {}
        for instr in called.instructions:
            if isinstance(instr.payload, int):
                given = call.operands[instr.payload]
                names[instr.name] = self._laid_out(call, given, instr.shape)
            else:
                names[instr.name] = name = self._fresh(instr.name)
                self._add(_reading(instr, names, name))
        return self._laid_out(call, names[called.root], call.shape)

    def _laid_out(self, call: Instruction, name: str, shape: AnyShape) -> str:
        """Return the value in the layout that `shape` has, by a copy where it has another."""
        if same_places(self._shapes[name], shape):
            return name
        copy = self._fresh(f"{call.name}.relayout")
        self._add(Instruction(copy, "copy", shape, (name,), span=call.span))
        return copy

    def _add(self, instr: Instruction) -> None:
        self._kept.append(instr)
        self._shapes[instr.name] = instr.shape


def _held(computation: Computation) -> set[str]:
    """Return the names that control dependencies mention, and those that have some."""
    return {
        name
        for instr in computation.instructions
        if "control-predecessors" in instr.attrs
        for name in (instr.name, *controls(instr))
    }


def _reading(instr: Instruction, names: Mapping[str, str], name: str) -> Instruction:
    """Return the instruction under `name`, what it mentions renamed."""
    before = controls(instr)
    if name == instr.name and not any(n in names for n in (*instr.operands, *before)):
        return instr
    made = instr.reading(tuple([names.get(o, o) for o in instr.operands]), name)
    if not before:
        return made
    renamed = tuple(names.get(c, c) for c in before)
    return replace(made, attrs={**instr.attrs, "control-predecessors": renamed})
