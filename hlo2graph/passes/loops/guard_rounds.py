"""Writing several rounds into the body of a loop that ends when its state says so.

In and out: a Module of the same meaning. What a loop costs beside its kernels is paid for each run
of its body. Behind the first round of a body, each further one chooses between what it makes and
the state as it was, as the condition says: a select at the end of the kernels that make it. A
round that is one too many changes nothing, and none after it does. What it does is lost time, so
this is for small work. Light rounds (see light) fuse with each other; between others stand
barriers: what they need of the state, they do not compute anew from what it was rounds before.

The rule, all of it: loops of an unknown number of rounds whose body and condition are small (see
small), and of whose state a round changes at most MOST_CHOSEN elements. The body is given as many
rounds as have MOST_INSTRUCTIONS, but MOST_ROUNDS at most, and LIGHT_ROUNDS of light ones. An update
in place of more than MOST_COPIED elements stays one: what is put there is chosen instead, by a
kernel more. Whether the loop goes on becomes a part of its state, so that the last round's kernels
test it. Runs once, behind simplify_loops, which writes the number of rounds down where it is known.

On an H200 a body costs about 7 us beside its rounds, and a round of two kernels 1.8 us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hlo2graph.hlo import DTYPES, Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.trip_count import written_count
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.inline_calls import inline_calls
from hlo2graph.passes.loops.light import light_work, work_of
from hlo2graph.passes.loops.several import several_rounds
from hlo2graph.passes.loops.small import is_small
from hlo2graph.passes.loops.state import loop_state
from hlo2graph.passes.names import Names
from hlo2graph.passes.rules.tuple_parts import index_of, own_root
from hlo2graph.passes.sequences import sequences
from hlo2graph.passes.simplify import simplify

MOST_ROUNDS = 5
LIGHT_ROUNDS = 16
MOST_INSTRUCTIONS = 128
MOST_CHOSEN = 1 << 16
MOST_COPIED = 1 << 14

_PRED = DTYPES["pred"]
_HOLDS = Shape(_PRED)


def guard_rounds(module: Module) -> Module:
    """Return `module` with several rounds in the body of each loop for which the rule holds."""
    writer = _Writer(module.computations, with_effects(module.computations))
    stepped = sequences(module)
    for name, computation in module.computations.items():
        loops = [i.name for i in computation.instructions if i.opcode == "while"]
        if loops and name in stepped:
            draft = Draft(computation, module.computations, writer.effects)
            for loop in loops:
                if loop in draft and written_count(draft[loop]) is None:
                    writer.write(draft, draft[loop])
            computation = draft.done()
        writer.done[name] = computation
    if len(writer.done) == len(module.computations):
        return module
    return simplify(inline_calls(replace(module, computations=writer.done)))


class _Writer:
    """Writes loops anew; `done` are the computations so far, callees first."""

    def __init__(self, computations: Mapping[str, Computation], effects: frozenset[str]) -> None:
        self.effects = effects
        self.done: dict[str, Computation] = {}
        self._computations = computations
        self._names = Names(computations)

    def write(self, draft: Draft, loop: Instruction) -> None:
        """Let a loop do several rounds at once, if the rule says so."""
        names = (str(loop.attrs[role]) for role in ("body", "condition"))
        body, condition = (self._computations[name] for name in names)
        rounds = _rounds_of(body, condition)
        if rounds < 2 or not draft.is_pure(loop):
            return
        guarded = _guarded(Draft(body, self._computations, self.effects), condition.name)
        guarded = self._put(guarded, f"{body.name}.guarded")
        called = [body.name, *[guarded.name] * (rounds - 1)]
        several = several_rounds(body, called, None if _is_light(body, condition) else 1)
        self._carry(draft, loop, self._put(several, f"{body.name}.rounds"), condition)

    def _carry(
        self, draft: Draft, loop: Instruction, body: Computation, condition: Computation
    ) -> None:
        """Let the loop run `body`, and what it tests be a part of its state."""
        rounds, call = body.root, {"to_apply": condition.name}
        holds = draft.add(loop, "call", _HOLDS, loop.operands, call)
        draft.become(loop.name, replace(loop, attrs={**loop.attrs, "body": body.name}))
        known = {**self._computations, **self.done}
        state = loop_state(draft, draft[loop.name], known, self.effects)
        assert state is not None, "its state is a tuple of arrays"
        number = len(state.parts)
        state.append(holds, _HOLDS, loop)
        root = state.body[state.body.root]
        holds = state.body.add(root, "call", _HOLDS, (rounds,), call)
        state.body.become(root.name, replace(root, operands=(*root.operands[:-1], holds)))
        self.done[body.name] = state.body.done()
        given = replace(state.condition[state.tested], name="state")
        index = {"index": number}
        tested = Instruction("holds", "get-tuple-element", _HOLDS, ("state",), index)
        asked = Computation(condition.name, (given, tested), "holds", span=condition.span)
        attrs = {**draft[loop.name].attrs, "condition": self._put(asked, asked.name).name}
        draft.become(loop.name, replace(draft[loop.name], attrs=attrs))

    def _put(self, computation: Computation, name: str) -> Computation:
        """Keep a new computation under a name like `name`; return it so."""
        named = replace(computation, name=self._names.fresh(name))
        self.done[named.name] = named
        return named


def _rounds_of(body: Computation, condition: Computation) -> int:
    shape = body.result.shape
    if not isinstance(shape, TupleShape) or not all(isinstance(p, Shape) for p in shape.parts):
        return 1
    if _changing(body) > MOST_CHOSEN or not is_small(body) or not is_small(condition):
        return 1
    work = work_of(body) + work_of(condition)
    most = LIGHT_ROUNDS if _is_light(body, condition) else MOST_ROUNDS
    return min(most, MOST_INSTRUCTIONS // max(1, work))


def _changing(body: Computation) -> int:
    """Return how many elements of the state a round changes, as far as that shows."""
    root, [given] = body.result, body.parameters
    assert isinstance(root.shape, TupleShape)
    names = root.operands if root.opcode == "tuple" else (root.name,)
    return sum(
        leaf.elements
        for number, name in enumerate(names)
        if not _is_element(body[name], given.name, number)
        for leaf in body[name].shape.leaves()
    )


def _is_light(body: Computation, condition: Computation) -> bool:
    return light_work(body) is not None and light_work(condition) is not None


def _guarded(body: Draft, condition: str) -> Computation:
    """Return a round that leaves the state as it is where the condition does not hold."""
    [given] = body.computation.parameters
    own_root(body)
    root = body[body.root]
    holds = body.add(root, "call", _HOLDS, (given.name,), {"to_apply": condition})
    results = [_chosen(body, given.name, k, name, holds) for k, name in enumerate(root.operands)]
    body.become(root.name, replace(root, operands=tuple(results)))
    return body.done()


def _chosen(body: Draft, state: str, number: int, name: str, holds: str) -> str:
    """Return what an element of the state becomes: `name`, or as it was."""
    new = body[name]
    if _is_element(new, state, number):
        return name
    if new.opcode == "dynamic-update-slice" and _stays(body, new, state, number):
        whole, update, *starts = new.operands
        shape = body.shape(update)
        before = body.add(
            new, "dynamic-slice", shape, (whole, *starts), {"dynamic_slice_sizes": shape.dims}
        )
        kept = _select(body, holds, update, before)
        return body.add(new, "dynamic-update-slice", new.shape, (whole, kept, *starts))
    index = {"index": number}
    before = body.add(new, "get-tuple-element", new.shape, (state,), index)
    return _select(body, holds, name, before)


def _stays(body: Draft, update: Instruction, state: str, number: int) -> bool:
    """Tell whether an update of an element of the state is to be made in its place."""
    large = body.shape(update.name).elements > MOST_COPIED
    return large and _is_element(body[update.operands[0]], state, number)


def _select(body: Draft, holds: str, new: str, before: str) -> str:
    like, shape = body[new], body.shape(new)
    if shape.dims:
        spread = Shape(_PRED, shape.dims, shape.layout)
        holds = body.add(like, "broadcast", spread, (holds,), {"dimensions": ()})
    return body.add(like, "select", shape, (holds, new, before))


def _is_element(instr: Instruction, state: str, number: int) -> bool:
    taken = instr.opcode == "get-tuple-element" and instr.operands == (state,)
    return taken and index_of(instr) == number
