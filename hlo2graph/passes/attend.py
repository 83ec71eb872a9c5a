"""Attention as one kernel: scores, a softmax or the like of them, and a product with values.

In and out: a Module of the same meaning, with fusions that `ops.region_attention` knows. Such a
fusion takes in

- all that waits for the scores, up to the product, and a conversion of its result;
- what is made for them alone and costs little where it is needed: masks, biases, broadcasts;
- what only moves queries, keys and values, whoever else looks at these.

What else is done to queries, keys and values is left to the kernels that make them.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from hlo2graph.hlo import AnyShape, Attribute, Computation, Instruction, Module, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.region import Attention, region_of
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.fusion.body import Body, Outline, with_operands
from hlo2graph.passes.fusion.facts import facts_of
from hlo2graph.passes.join import Joiner, controls
from hlo2graph.passes.lay_out_dots import lay_out
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.sequences import sequences

MOST_BETWEEN = 64  # instructions between the two products
_MOVES = frozenset({"reshape", "slice", "transpose"})
_BETWEEN = frozenset({"broadcast", "reduce", "reshape", "transpose"})  # and what is elementwise
_MADE = frozenset({"broadcast", "iota", "reshape"})  # the same


def attend(module: Module) -> Module:
    """Return `module` with attention fused in every computation that becomes thunks."""
    stepped = sequences(module)
    effects = with_effects(module.computations)
    joiner = Joiner.of(module)
    computations: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        found = computation
        if name in stepped:
            body = Body.of(computation, effects)
            for outline in _Search(body).outlines():
                fused = replace(outline.computation, name=joiner.fresh(outline.computation.name))
                computations[fused.name] = fused
                found = _with_fusion(found, outline, fused, joiner.fresh("attention_fusion"))
        computations[name] = found
    if len(computations) == len(module.computations):
        return module
    return _laid_out(
        replace(module, computations=computations), computations.keys() - module.computations.keys()
    )


def _laid_out(module: Module, fused: Set[str]) -> Module:
    """Return the module with results of the fusions that lie as those who read them want them."""

    def laid(draft: Draft) -> Computation:
        for name in tuple(draft.instructions):
            if draft[name].opcode == "fusion" and not fused.isdisjoint(draft[name].called()):
                lay_out(draft, draft[name], lambda shape: shape.elements > 0)
        return draft.done()

    found = redraft(module, "fusion", laid)
    computations = dict(found.computations)
    for computation in found.computations.values():
        for instr in computation.instructions:
            if instr.opcode == "fusion" and not fused.isdisjoint(instr.called()):
                [called] = instr.called()
                computations[called] = _lying(computations[called], instr.shape)
    return replace(found, computations=computations)


def _lying(computation: Computation, shape: AnyShape) -> Computation:
    """Return the fusion's computation whose product, and the conversion of it, lie as `shape`."""
    assert isinstance(shape, Shape)
    names, root = [computation.root], computation.result
    if root.opcode == "convert":
        names.append(root.operands[0])
    instructions = tuple(
        replace(i, shape=replace(shape, dtype=i.shape.dtype))
        if i.name in names and isinstance(i.shape, Shape)
        else i
        for i in computation.instructions
    )
    return replace(computation, instructions=instructions)


def _with_fusion(
    computation: Computation, outline: Outline, fused: Computation, name: str
) -> Computation:
    """Return the computation with a fusion in the place of the outline's result."""
    [result] = outline.results
    last = computation[result]
    attrs: dict[str, Attribute] = {"kind": "kInput", "calls": fused.name}
    attrs |= {k: v for k, v in last.attrs.items() if k == "metadata"}
    fusion = Instruction(name, "fusion", last.shape, outline.operands, attrs, span=last.span)
    renamed = {result: name}
    instructions = tuple(
        fusion if i.name == result else with_operands(i, renamed) for i in computation.instructions
    )
    root = renamed.get(computation.root, computation.root)
    return replace(computation, instructions=instructions, root=root)


@dataclass(slots=True)
class _Search:
    """Looks for attention in one computation."""

    body: Body

    def outlines(self) -> Iterator[Outline]:
        """Yield what becomes a fusion."""
        taken: set[str] = set()
        for product in self.body.computation.instructions:
            if product.opcode == "dot" and product.name in self.body.live:
                outline = self._outline(product)
                if outline is not None and taken.isdisjoint(outline.operands):
                    taken.update(outline.results)
                    yield outline

    def _outline(self, product: Instruction) -> Outline | None:
        for weights in dict.fromkeys(product.operands):
            between = self._between(weights)
            if between is None:
                continue
            result = self._converted(product.name)
            members = {*between, product.name, result}
            if any(self._is_seen(name, members) for name in members - {result}):
                continue
            self._take_made(members)
            self._take_moved(members)
            outline = self.body.outline(members, (result,), f"fused_{result}")
            tied = any(controls(self.body[m]) or self._is_dynamic(m) for m in members)
            region = None if tied else region_of(outline.computation)
            if isinstance(region, Attention) and outline.results == (result,):
                return outline
        return None

    def _between(self, weights: str) -> list[str] | None:
        """Return the one dot, and the fold behind it, that weights are made of: all that waits."""
        seen, pending, dots, folds = {weights}, [weights], set[str](), False
        while pending:
            instr = self.body[pending.pop()]
            if instr.opcode == "dot":
                dots.add(instr.name)
            elif self._passes_on(instr):
                folds |= instr.opcode == "reduce"
                fresh = [o for o in instr.operands if o not in seen]
                seen.update(fresh)
                pending += fresh
            if len(seen) > MOST_BETWEEN or len(dots) > 1:
                return None
        if not folds or len(dots) != 1:
            return None
        waiting = dots
        for name in self.body.in_order(seen):
            if self._passes_on(self.body[name]) and not waiting.isdisjoint(
                self.body[name].operands
            ):
                waiting.add(name)
        return self.body.in_order(waiting)

    def _is_seen(self, name: str, members: set[str]) -> bool:
        """Tell whether anything else looks at a member."""
        is_root = name == self.body.computation.root
        return is_root or not members.issuperset(self.body.users[name])

    def _passes_on(self, instr: Instruction) -> bool:
        return instr.opcode in _BETWEEN or self._is_elementwise(instr)

    def _is_elementwise(self, instr: Instruction) -> bool:
        return OPS[instr.opcode].elementwise and isinstance(instr.shape, Shape)

    def _converted(self, name: str) -> str:
        """Return the conversion of a result that nothing else looks at, if there is one."""
        users = self.body.users.get(name, [])
        is_lone = len(users) == 1 and name != self.body.computation.root
        return users[0] if is_lone and self.body[users[0]].opcode == "convert" else name

    def _take_made(self, members: set[str]) -> None:
        """Add what is made for the members alone, and is cheap enough to be made again."""
        for instr in reversed(self.body.computation.instructions):
            users = self.body.users.get(instr.name, [])
            is_made = instr.opcode in _MADE or self._is_elementwise(instr)
            if (
                users
                and members.issuperset(users)
                and is_made
                and instr.name != self.body.computation.root
                and not facts_of(self.body, instr.name).is_dear
                and not self._goes_into_product(instr.name)
            ):
                members.add(instr.name)

    def _goes_into_product(self, name: str) -> bool:
        return any(self.body[user].opcode == "dot" for user in self.body.users[name])

    def _take_moved(self, members: set[str]) -> None:
        """Add what only moves what goes into the products."""
        pending = [
            o for m in members if self.body[m].opcode == "dot" for o in self.body[m].operands
        ]
        while pending:
            name = pending.pop()
            if name not in members and self.body[name].opcode in _MOVES:
                members.add(name)
                pending += self.body[name].operands

    def _is_dynamic(self, name: str) -> bool:
        return any(leaf.dynamic for leaf in self.body[name].shape.leaves())
