"""Write several instructions of a computation as one fusion of fusions, a part each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from hlo2graph.hlo import Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.ops.effects import has_effect


@dataclass(frozen=True, slots=True)
class Joiner:
    """Gives names that the module does not have."""

    taken: set[str]
    counts: dict[str, int] = field(default_factory=dict)  # of each stem, up to where all are taken

    @staticmethod
    def of(module: Module) -> Joiner:
        """Return one for `module`."""
        computations = module.computations.values()
        return Joiner(
            {c.name for c in computations} | {i.name for c in computations for i in c.instructions}
        )

    def fresh(self, stem: str) -> str:
        """Return `stem`, `stem.1`, ...: a name not given before."""
        count = self.counts.get(stem, 0)
        name = f"{stem}.{count}" if count else stem
        while name in self.taken:
            count += 1
            name = f"{stem}.{count}"
        self.taken.add(name)
        self.counts[stem] = count
        return name


def joined(
    computation: Computation,
    groups: Sequence[Sequence[Instruction]],
    joiner: Joiner,
    effects: frozenset[str],
) -> tuple[dict[str, Computation], Computation]:
    """Return the computations of the new fusions, and `computation` with them.

    No instruction of a group may wait for another of it, nor groups for each other. `effects` are
    the computations in which something has a side effect.
    """
    added: dict[str, Computation] = {}
    made: dict[str, tuple[Instruction, ...]] = {}  # by the name of what they replace
    for group in groups:
        first, *rest = group
        made[first.name] = tuple(_join(computation, group, joiner, added))
        made |= {instr.name: () for instr in rest}
    replaced = [new for i in computation.instructions for new in made.get(i.name, (i,))]
    return added, replace(computation, instructions=in_order(replaced, effects))


def _join(
    computation: Computation,
    group: Sequence[Instruction],
    joiner: Joiner,
    added: dict[str, Computation],
) -> Iterator[Instruction]:
    """Yield the fusion of a group, and what takes each result out of it under its old name."""
    parts = [_part(computation, instr, joiner, added) for instr in group]
    outside = tuple(dict.fromkeys(o for part in parts for o in part.operands))
    given = {
        name: Instruction(f"p{k}", "parameter", computation[name].shape, payload=k)
        for k, name in enumerate(outside)
    }
    inner = tuple(
        replace(part, operands=tuple(given[o].name for o in part.operands)) for part in parts
    )
    shape = TupleShape(tuple(part.shape for part in parts))
    root = Instruction("parts", "tuple", shape, tuple(part.name for part in inner))
    name = joiner.fresh("side_by_side")
    added[name] = Computation(name, (*given.values(), *inner, root), root.name)
    whole = joiner.fresh("side_by_side_fusion")
    attrs = {"kind": "kLoop", "calls": name}
    yield Instruction(whole, "fusion", shape, outside, attrs, span=group[0].span)
    for k, instr in enumerate(group):
        kept = {a: v for a, v in instr.attrs.items() if a == "metadata"}
        yield Instruction(
            instr.name,
            "get-tuple-element",
            instr.shape,
            (whole,),
            {"index": k, **kept},
            span=instr.span,
        )


def _part(
    computation: Computation, instr: Instruction, joiner: Joiner, added: dict[str, Computation]
) -> Instruction:
    """Return `instr` as a fusion, with the scalar constants that a lone one uses inside."""
    name = joiner.fresh(f"{instr.name}.part")
    if instr.opcode == "fusion":
        return replace(instr, name=name)
    operands = tuple(dict.fromkeys(instr.operands))
    known = tuple(o for o in operands if _is_scalar_constant(computation[o]))
    outside = tuple(o for o in operands if o not in known)
    given = [
        Instruction(f"param_{k}.{o}", "parameter", computation[o].shape, payload=k)
        for k, o in enumerate(outside)
    ]
    names = {o: p.name for o, p in zip(outside, given, strict=True)}
    constants = [computation[o] for o in known]
    inner = replace(instr, operands=tuple(names.get(o, o) for o in instr.operands))
    called = joiner.fresh(f"joined_{instr.opcode.replace('-', '_')}")
    added[called] = Computation(called, (*given, *constants, inner), inner.name)
    attrs = {"kind": "kLoop", "calls": called}
    return Instruction(name, "fusion", instr.shape, outside, attrs, span=instr.span)


def _is_scalar_constant(instr: Instruction) -> bool:
    scalar = isinstance(instr.shape, Shape) and instr.shape.elements == 1
    return instr.opcode == "constant" and scalar


def in_order(
    instructions: Sequence[Instruction], effects: frozenset[str]
) -> tuple[Instruction, ...]:
    """Return the instructions behind all that they wait for, else in the order given."""
    before = waits_of(instructions, effects)
    by_name = {instr.name: instr for instr in instructions}
    found: dict[str, Instruction] = {}
    for name in by_name:
        stack = [name]
        while stack:
            missing = [n for n in before[stack[-1]] if n not in found]
            if missing:
                stack += reversed(missing)
            else:
                found.setdefault(stack[-1], by_name[stack[-1]])
                stack.pop()
    return tuple(found.values())


def waits_of(
    instructions: Sequence[Instruction], effects: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """Return what each instruction waits for: operands, control dependencies, earlier effects."""
    before: dict[str, tuple[str, ...]] = {}
    last: tuple[str, ...] = ()  # with a side effect: these keep their order
    for instr in instructions:
        before[instr.name] = (*instr.operands, *controls(instr))
        if has_effect(instr) or not effects.isdisjoint(instr.called()):
            before[instr.name] += last
            last = (instr.name,)
    return before


def controls(instr: Instruction) -> tuple[str, ...]:
    """Return the control-predecessors."""
    held = instr.attrs.get("control-predecessors", ())
    return tuple(n for n in held if isinstance(n, str)) if isinstance(held, tuple) else ()
