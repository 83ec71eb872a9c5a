"""Let a library read slices where they lie: the operands of its products, by their strides.

In and out: a Module of the same meaning. Where a library computes a dot, a slice in front of it,
reshaped or transposed, would be a kernel that only moves elements. Such a dot becomes a fusion
with its slices, which is still one product of matrices with strides. What kernels of ours multiply
needs none of this: they read through anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hlo2graph.hlo import Attribute, Computation, Instruction, Module, Shape
from hlo2graph.ops.cut import CUTTING
from hlo2graph.ops.matmul import matmul_of
from hlo2graph.ops.own_dot import runs_as_own_kernel
from hlo2graph.passes.join import Joiner, controls
from hlo2graph.passes.sequences import sequences


def cut_dots(module: Module) -> Module:
    """Return `module` with slices put into the dots that a library reads them for."""
    stepped = sequences(module)
    joiner = Joiner.of(module)
    computations: dict[str, Computation] = {}
    changed = False
    for name, computation in module.computations.items():
        if name in stepped:
            added = _cut(computation, joiner)
            if added:
                changed = True
                computation = _with_fusions(computation, added)
                computations |= {made.name: made for made, _ in added.values()}
        computations[name] = computation
    return replace(module, computations=computations) if changed else module


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of a dot: what it is cut out of, and how, from there on."""

    source: str
    chain: tuple[Instruction, ...] = ()


def _cut(
    computation: Computation, joiner: Joiner
) -> dict[str, tuple[Computation, tuple[str, ...]]]:
    """Return for each dot that changes its fusion's computation and operands."""
    held = {n for i in computation.instructions if controls(i) for n in (i.name, *controls(i))}
    found = {}
    for dot in computation.instructions:
        if dot.opcode != "dot" or len(dot.operands) != 2 or dot.name in held:
            continue
        lhs, rhs = (computation[name].shape for name in dot.operands)
        if not isinstance(lhs, Shape) or not isinstance(rhs, Shape):
            continue
        if not runs_as_own_kernel(dot, lhs, rhs) and (made := _best(computation, dot, held)):
            inside, operands = made
            name = joiner.fresh(f"cut_{dot.name}")
            found[dot.name] = (replace(inside, name=name), operands)
    return found


def _best(
    computation: Computation, dot: Instruction, held: set[str]
) -> tuple[Computation, tuple[str, ...]] | None:
    """Return the dot with as many operands cut as a library can read."""
    plain = [_Operand(name) for name in dot.operands]
    lhs, rhs = (_followed(computation, name, held) for name in dot.operands)
    for choice in ((lhs, rhs), (lhs, plain[1]), (plain[0], rhs)):
        if any(operand.chain for operand in choice):
            made = _outlined(computation, dot, choice)
            if matmul_of(made[0]) is not None:
                return made
    return None


def _followed(computation: Computation, name: str, held: set[str]) -> _Operand:
    """Follow an operand to what its outermost slice is taken of; whole, where there is no slice."""
    chain: list[Instruction] = []
    found = _Operand(name)
    instr = computation[name]
    while instr.opcode in CUTTING and instr.name not in held:
        chain.append(instr)
        if instr.opcode == "slice":
            found = _Operand(instr.operands[0], tuple(reversed(chain)))
        instr = computation[instr.operands[0]]
    return found


def _outlined(
    computation: Computation, dot: Instruction, operands: tuple[_Operand, _Operand]
) -> tuple[Computation, tuple[str, ...]]:
    """Return the dot and what cuts its operands as a computation, and the operands of that."""
    outside = tuple(dict.fromkeys(operand.source for operand in operands))
    given = {
        source: Instruction(
            f"param_{k}.{source}", "parameter", computation[source].shape, payload=k
        )
        for k, source in enumerate(outside)
    }
    inside = {p.name: p for p in given.values()}
    names = {source: p.name for source, p in given.items()}
    for instr in (*operands[0].chain, *operands[1].chain, dot):
        renamed = tuple(names.get(o, o) for o in instr.operands)
        inside[instr.name] = replace(instr, operands=renamed)
    return Computation("cut", tuple(inside.values()), dot.name, span=dot.span), outside


def _with_fusions(
    computation: Computation, added: Mapping[str, tuple[Computation, tuple[str, ...]]]
) -> Computation:
    """Return `computation` with fusions in the dots' places, under their names."""
    instructions = []
    for instr in computation.instructions:
        if instr.name in added:
            called, operands = added[instr.name]
            attrs: dict[str, Attribute] = {"kind": "kCustom", "calls": called.name}
            attrs |= {k: v for k, v in instr.attrs.items() if k == "metadata"}
            instr = replace(instr, opcode="fusion", operands=operands, attrs=attrs)
        instructions.append(instr)
    return replace(computation, instructions=tuple(instructions))
