"""Writing two rounds of a loop into its body, so that its state need not be copied.

In and out: a Module of the same meaning. What a round makes of an element while others still read
that has to be made elsewhere, and copied back behind the round. Of two rounds the second can write
where the first has read for the last time; and the loop is asked half as often whether it goes on.
Light rounds (see light) fuse with each other; there are barriers between others (see several). What
folds nothing, such as a stencil, does two rounds in one kernel where fusion finds that cheaper, so
that four are needed. What only counts goes around the barriers, so that it counts them all at once.

Loops of a known number of rounds, FEWEST_ROUNDS or more, whose body has at most MOST_INSTRUCTIONS
and neither loops nor branches nor fusions, such as sweep_rounds makes; rounds that are over are
done before. Runs once, behind simplify_loops, which writes the number of rounds down.
"""

from __future__ import annotations

from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Module, Raw, Shape, TupleShape
from hlo2graph.ops.trip_count import written_count
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.loops.light import folds_nothing, light_work
from hlo2graph.passes.loops.redraft_loops import redraft_loops
from hlo2graph.passes.loops.several import several_rounds
from hlo2graph.passes.names import Names

FEWEST_ROUNDS = 4
MOST_INSTRUCTIONS = 256
FUSED = 2  # rounds that one kernel does, where nothing is folded

_NESTING = frozenset({"call", "conditional", "fusion", "while"})


def double_rounds(module: Module) -> Module:
    """Return `module` with two rounds in the body of each loop for which the rule holds."""
    return redraft_loops(module, _doubled)


def _doubled(draft: Draft, loop: Instruction) -> tuple[Computation, ...]:
    """Let a loop do two rounds at once; return its new body, if it has one."""
    body = draft.computations[str(loop.attrs["body"])]
    rounds = written_count(loop)
    if rounds is None or rounds < FEWEST_ROUNDS or not _may_be_doubled(body):
        return ()
    call = {"to_apply": body.name}
    state = loop.operands[0]
    is_light = light_work(body) is not None
    fused = FUSED if folds_nothing(body) and not is_light and rounds >= 2 * FEWEST_ROUNDS else 1
    at_once = 2 * fused
    for _ in range(rounds % at_once):
        state = draft.add(loop, "call", loop.shape, (state,), call)
    called = (body.name,) * at_once
    twice = several_rounds(body, called, None if is_light else fused, _counters(body))
    name = Names(draft.computations).fresh(f"{body.name}.twice")
    known = Raw(f'{{"known_trip_count":{{"n":"{rounds // at_once}"}}}}')
    attrs = {**loop.attrs, "body": name, "backend_config": known}
    draft.become(loop.name, replace(loop, operands=(state,), attrs=attrs))
    return (replace(twice, name=name),)


def _may_be_doubled(body: Computation) -> bool:
    changed = isinstance(body.result.shape, TupleShape) and any(
        leaf.elements > 1 for leaf in body.result.shape.leaves()
    )
    return (
        changed
        and len(body.instructions) <= MOST_INSTRUCTIONS
        and all(i.opcode not in _NESTING for i in body.instructions)
    )


def _counters(body: Computation) -> frozenset[int]:
    """Return the scalars of the state that nothing but their own next values are made of."""
    root, [given] = body.result, body.parameters
    if root.opcode != "tuple":
        return frozenset()
    found = set()
    for number, name in enumerate(root.operands):
        made: set[str] = set()
        for instr in body.instructions:
            taken = instr.operands == (given.name,) and instr.attrs.get("index") == number
            if taken or not made.isdisjoint(instr.operands):
                made.add(instr.name)
        shape = body[name].shape
        alone = [k for k, other in enumerate(root.operands) if other in made] == [number]
        if isinstance(shape, Shape) and not shape.dims and alone:
            found.add(number)
    return frozenset(found)
