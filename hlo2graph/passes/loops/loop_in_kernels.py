"""Loops whose elements go their own ways, as one kernel each.

In and out: a Module of the same meaning, whose results have the same bits. See `ops.element_loop`
for which loops these are. Each becomes a fusion that is the loop, with what of its state begins as
constants; however many rounds it has, the state stays in registers. Runs once, behind
simplify_loops, which writes out short ones, so that these fuse with what is around them.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Attribute, Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.element_loop import is_per_element
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.names import Names
from hlo2graph.passes.rules.tuple_parts import index_of
from hlo2graph.passes.sequences import sequences


def loop_in_kernels(module: Module) -> Module:
    """Return `module` with loops as kernels where each element goes its own way."""
    stepped = sequences(module)
    effects = with_effects(module.computations)
    names = Names(module.computations)
    done: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        loops = [i.name for i in computation.instructions if i.opcode == "while"]
        if loops and name in stepped:
            draft = Draft(computation, module.computations, effects)
            for loop in loops:
                if loop in draft and draft.is_pure(draft[loop]):
                    made = _in_kernel(draft, draft[loop], names)
                    done |= {made.name: made} if made else {}
            computation = draft.done()
        done[name] = computation
    return module if len(done) == len(module.computations) else replace(module, computations=done)


def _in_kernel(draft: Draft, loop: Instruction, names: Names) -> Computation | None:
    """Put a fusion in the place of a loop, if that is one; return what it calls."""
    if not is_per_element(loop, draft.computations):
        return None
    operands: list[str] = []
    inner: list[Instruction] = []
    parts = []
    for number, leaf in enumerate(loop.shape.leaves()):
        part = _part(draft, loop, number, leaf)
        if made := _constants(draft, part):
            inner += (i for i in made if i not in inner)
            parts.append(made[-1].name)
        else:
            name = f"{loop.name}.state.{number}"
            inner.append(Instruction(name, "parameter", leaf, payload=len(operands)))
            operands.append(part)
            parts.append(name)
    given = Instruction(f"{loop.name}.state", "tuple", loop.shape, tuple(parts))
    inner += (given, loop.reading((given.name,)))
    read = [user for user in draft.users_of(loop.name) if user.opcode == "get-tuple-element"]
    numbers = sorted({index_of(user) for user in read})
    shapes = tuple(loop.shape.leaves())
    results = [
        Instruction(f"{loop.name}.{n}", "get-tuple-element", shapes[n], (loop.name,), {"index": n})
        for n in numbers
    ]
    if len(read) < len(draft.users_of(loop.name)) or loop.name == draft.root or not results:
        return None
    shape = TupleShape(tuple(shapes[n] for n in numbers))
    ended = Instruction(f"{loop.name}.results", "tuple", shape, tuple(r.name for r in results))
    fused = Computation(names.fresh(f"{loop.name}.rounds"), (*inner, *results, ended), ended.name)
    attrs: dict[str, Attribute] = {"kind": "kLoop", "calls": fused.name}
    fusion = draft.add(loop, "fusion", shape, operands, attrs)
    for user in read:
        place = {"index": numbers.index(index_of(user))}
        draft.redirect(
            user.name, draft.add(user, "get-tuple-element", user.shape, (fusion,), place)
        )
    return fused


def _part(draft: Draft, loop: Instruction, number: int, shape: Shape) -> str:
    given = draft[loop.operands[0]]
    if given.opcode == "tuple":
        return given.operands[number]
    return draft.add(loop, "get-tuple-element", shape, (given.name,), {"index": number})


def _constants(draft: Draft, name: str) -> list[Instruction]:
    """Return a constant, or one and its broadcast, if that is what `name` is."""
    instr = draft[name]
    if instr.opcode == "broadcast":
        return [*made, instr] if (made := _constants(draft, instr.operands[0])) else []
    is_one = isinstance(instr.shape, Shape) and not instr.shape.dims
    return [instr] if instr.opcode == "constant" and is_one else []
