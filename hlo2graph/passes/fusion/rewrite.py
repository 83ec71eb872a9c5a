"""Writing groups into a computation as fusions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hlo2graph.hlo import Attribute, Computation, Instruction, TupleShape
from hlo2graph.passes.fusion.body import Body, with_operands
from hlo2graph.passes.fusion.facts import FOLDS
from hlo2graph.passes.fusion.group import Group
from hlo2graph.passes.join import Joiner, in_order

_NO_KERNEL = frozenset(
    {"bitcast", "constant", "get-tuple-element", "parameter", "reshape", "tuple"}
)


@dataclass(slots=True)
class Rewriting:
    """What a computation becomes.

    fusions: the fused computations; named: the name that each group's kernel has now.
    """

    body: Body
    joiner: Joiner
    fusions: dict[str, Computation] = field(default_factory=dict)
    named: dict[Group, str] = field(default_factory=dict)
    _made: dict[str, tuple[Instruction, ...]] = field(default_factory=dict)
    _renamed: dict[str, str] = field(default_factory=dict)

    def run(self, groups: Iterable[Group], effects: frozenset[str]) -> Computation:
        """Return the computation with `groups` as fusions."""
        for group in groups:
            self._fuse(group)
        computation = self.body.computation
        needed = [*self.body.barred, computation.root]
        found: dict[str, tuple[Instruction, ...]] = {}
        while needed:
            name = needed.pop()
            if name not in found:
                found[name] = self._made.get(name, (self.body[name],))
                needed += [o for i in found[name] for o in i.operands if o in self.body.place]
        kept = {
            new.name: with_operands(new, self._renamed)
            for i in computation.instructions
            for new in found.get(i.name, ())
        }
        root = self._renamed.get(computation.root, computation.root)
        return replace(computation, instructions=in_order(tuple(kept.values()), effects), root=root)

    def _fuse(self, group: Group) -> None:
        """Note what stands for a group's results; a lone instruction stays as it is."""
        last = self.body[group.results[-1]]
        name = f"fused_{last.name}"
        outline = self.body.outline(group.members, group.results, name)
        fused, results = outline.computation, outline.results
        last = self.body[results[-1]]
        if sum(i.opcode not in _NO_KERNEL for i in fused.instructions) < 2:
            self.named[group] = last.name
            return
        fused = replace(fused, name=self.joiner.fresh(fused.name))
        self.fusions[fused.name] = fused
        name = self.joiner.fresh(f"{last.opcode}_fusion")
        self.named[group] = name
        folds = any(i.opcode in FOLDS for i in fused.instructions)
        attrs: dict[str, Attribute] = {"kind": "kInput" if folds else "kLoop", "calls": fused.name}
        attrs |= _metadata(last)
        shape = fused.result.shape
        fusion = Instruction(name, "fusion", shape, outline.operands, attrs, span=last.span)
        if len(results) == 1:
            self._made[last.name] = (fusion,)
            self._renamed[last.name] = name
            return
        assert isinstance(shape, TupleShape)
        for number, result in enumerate(results):
            part = self.body[result]
            taken = Instruction(
                result,
                "get-tuple-element",
                part.shape,
                (name,),
                {"index": number, **_metadata(part)},
                span=part.span,
            )
            self._made[result] = (fusion, taken)


def _metadata(instr: Instruction) -> dict[str, Attribute]:
    return {k: v for k, v in instr.attrs.items() if k == "metadata"}
