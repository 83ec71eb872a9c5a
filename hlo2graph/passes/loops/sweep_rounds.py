"""Several rounds of a stencil as one kernel: a fusion that calls one round so many times.

In and out: a Module of the same meaning, whose results have the same bits. Each kernel of a loop
that does little is a launch, and reads and writes its state; several rounds in one kernel do so
once, for which neighbouring blocks compute what lies between them twice. See `ops.sweeps` for how
many that are worth it. The body of such a loop has two fusions of as many rounds, so that its state
need not be copied; what is over comes before.

Loops of a known number of rounds, FEWEST_ROUNDS or more, of whose state the rounds change arrays
of the same dimensions, MOST_STATES at most, and scalars that no array depends on. Runs once, before
double_rounds, which leaves them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from hlo2graph.hlo import Attribute, Computation, Instruction, Module, Raw, Shape, TupleShape
from hlo2graph.ops.stencil import Stencil, stencil_of
from hlo2graph.ops.sweeps import ENOUGH, nanoseconds, nanoseconds_of_two, part_of
from hlo2graph.ops.trip_count import written_count
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.loops.light import folds_nothing, light_work
from hlo2graph.passes.loops.redraft_loops import redraft_loops
from hlo2graph.passes.names import Names
from hlo2graph.passes.rules.tuple_parts import index_of
from hlo2graph.passes.rules.updates import joined, known_window

FEWEST_ROUNDS = 4
MOST_STATES = 4
MOST_INSTRUCTIONS = 256
NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 16, 20, 24, 32, 40, 48, 64)  # of rounds a kernel


def sweep_rounds(module: Module) -> Module:
    """Return `module` with several rounds in each kernel of the loops for which the rule holds."""
    names = Names(module.computations)
    return redraft_loops(module, lambda draft, loop: _swept(draft, loop, names))


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop's body: which elements of its state are swept, stay, or only count."""

    body: Computation
    arrays: tuple[int, ...]
    still: tuple[int, ...]
    round: Computation  # of the arrays and what stays
    stencil: Stencil

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The arrays' shapes."""
        found = [p.shape for p in self.round.parameters[: len(self.arrays)]]
        return tuple(shape for shape in found if isinstance(shape, Shape))


def _swept(draft: Draft, loop: Instruction, names: Names) -> Iterator[Computation]:
    """Let a loop sweep if it should; yield the computations that it then needs."""
    total = written_count(loop)
    if total is None or total < FEWEST_ROUNDS:
        return
    found = _sweeping(_joined(draft.computations[str(loop.attrs["body"])], draft))
    rounds = _rounds(found, total) if found else 0
    if found is None or not rounds:
        return
    body, pairs = found.body, (total - 1) // (2 * rounds)
    over = total - 2 * rounds * pairs
    called = replace(found.round, name=names.fresh(f"{body.name}.round"))
    count = replace(_counting(found), name=names.fresh(f"{body.name}.count"))
    yield from (called, count)
    fused: dict[int, Computation] = {}
    for number in {rounds, *_each(over, rounds)}:
        made = _fused(called, found, number)
        fused[number] = replace(made, name=names.fresh(f"{body.name}.swept"))
        yield fused[number]
    before = _Writer(draft, loop, found, count.name, fused)
    state = before.write(loop.operands[0], _each(over, rounds))
    if not pairs:
        draft.redirect(loop.name, state)
        return
    inside = Computation(body.name, (replace(body.parameters[0], name="state"),), "state")
    twice = Draft(inside, draft.computations, frozenset())
    root = _Writer(twice, loop, found, count.name, fused).write("state", (rounds, rounds))
    twice.root = root
    yield replace(twice.done(), name=(name := names.fresh(f"{body.name}.sweeps")), span=body.span)
    known = Raw(f'{{"known_trip_count":{{"n":"{pairs}"}}}}')
    attrs = {**loop.attrs, "body": name, "backend_config": known}
    draft.become(loop.name, replace(loop, operands=(state,), attrs=attrs))


def _each(total: int, most: int) -> tuple[int, ...]:
    """Return the rounds of each kernel of `total`, the last of which has what is left."""
    return (most,) * (total // most) + ((total % most,) if total % most else ())


def _rounds(loop: _Loop, total: int) -> int:
    """Return how many rounds each kernel has, 0 where several gain nothing."""
    numbers = {min(total, n) for n in NUMBERS}
    each = {n: _each(total, n) for n in sorted(numbers)}
    times = {n: _time(loop, n) for n in set[int]().union(*each.values())}
    taken = {n: sum(times[k] for k in kernels) for n, kernels in each.items()}
    found = min(taken, key=lambda n: taken[n])
    return found if taken[found] < ENOUGH * total / 2 * nanoseconds_of_two(loop.stencil) else 0


def _time(loop: _Loop, rounds: int) -> float:
    part = part_of(loop.stencil, loop.shapes, rounds)
    sizes = [shape.dtype.size for shape in loop.shapes]
    return inf if part is None else nanoseconds(loop.stencil, part, sizes)


def _joined(body: Computation, outer: Draft) -> Computation:
    """Return a loop's body with its updates at known places joined with what lies around them.

    So is a border that is set in each round a part of the round. Left as it is where arrays are
    only updated, in less than half of them: that is better done in place.
    """
    updates = [i.name for i in body.instructions if i.opcode == "dynamic-update-slice"]
    if not updates or len(body.instructions) > MOST_INSTRUCTIONS:
        return body
    if not any(_is_renewed(body, name) for name in body.result.operands):
        return body
    draft = Draft(body, outer.computations, frozenset())
    for name in updates:
        if name in draft and (window := known_window(draft, draft[name])) is not None:
            draft.become(name, joined(draft, draft[name], window))
    return draft.done()


def _is_renewed(body: Computation, name: str) -> bool:
    """Tell whether an array is made anew, or at least half of it in the place of what it was."""
    written, instr = 0, body[name]
    while instr.opcode == "dynamic-update-slice":
        target, update, *_ = instr.operands
        written, instr = written + body[update].shape.size, body[target]
    if not isinstance(instr.shape, Shape) or not instr.shape.rank:
        return False
    return instr.opcode != "get-tuple-element" or 2 * written >= instr.shape.size


def _sweeping(body: Computation) -> _Loop | None:
    """Return what there is to sweep in a loop's body."""
    root, [given] = body.result, body.parameters
    taken = _taken(body, given.name)
    if root.opcode != "tuple" or taken is None or len(body.instructions) > MOST_INSTRUCTIONS:
        return None
    if not folds_nothing(body) or light_work(body) is not None:
        return None
    changed = [k for k, name in enumerate(root.operands) if taken.get(name) != k]
    shapes = [body[root.operands[k]].shape for k in changed]
    arrays = tuple(
        k for k, s in zip(changed, shapes, strict=True) if isinstance(s, Shape) and s.dims
    )
    counters = set(changed) - set(arrays)
    if not 1 <= len(arrays) <= MOST_STATES:
        return None
    needed = {taken[n] for k in arrays for n in _needed(body, root.operands[k]) if n in taken}
    counted = {taken[n] for k in counters for n in _needed(body, root.operands[k]) if n in taken}
    if needed & counters or counted & set(arrays):
        return None
    still = tuple(sorted(needed - set(arrays)))
    once = _round(body, taken, arrays, still)
    stencil = stencil_of(once, len(arrays))
    return _Loop(body, arrays, still, once, stencil) if stencil else None


def _taken(body: Computation, given: str) -> dict[str, int] | None:
    """Return which elements of its state a body takes, by name; None if it uses it otherwise."""
    taken: dict[str, int] = {}
    for instr in body.instructions:
        if given in instr.operands:
            if instr.opcode != "get-tuple-element":
                return None
            taken[instr.name] = index_of(instr)
    return taken


def _needed(body: Computation, name: str) -> set[str]:
    """Return the names of all that an instruction is made of, and its own."""
    found, pending = {name}, [name]
    while pending:
        fresh = set(body[pending.pop()].operands) - found
        found |= fresh
        pending += fresh
    return found


def _round(
    body: Computation, taken: Mapping[str, int], arrays: Sequence[int], still: Sequence[int]
) -> Computation:
    """Return the computation of the next arrays from them and what stays."""
    numbers = {element: number for number, element in enumerate((*arrays, *still))}
    shape = body.parameters[0].shape
    assert isinstance(shape, TupleShape)
    names = {numbers[k]: n for n, k in taken.items() if k in numbers}
    given = [
        Instruction(names.get(number, f"state.{k}"), "parameter", shape.parts[k], payload=number)
        for k, number in numbers.items()
    ]
    roots = [body.result.operands[k] for k in arrays]
    needed = set[str]().union(*(_needed(body, root) for root in roots))
    same = {n: names[numbers[k]] for n, k in taken.items() if k in numbers}
    inner = [
        i.reading(tuple(same.get(o, o) for o in i.operands))
        for i in body.instructions
        if i.name in needed and i.name not in taken and i.opcode != "parameter"
    ]
    roots = [same.get(root, root) for root in roots]
    if len(roots) > 1:
        parts = TupleShape(tuple(shape.parts[k] for k in arrays))
        inner.append(Instruction("states", "tuple", parts, tuple(roots), span=body.span))
        roots = ["states"]
    return Computation(body.name, (*given, *inner), roots[0], span=body.span)


def _counting(loop: _Loop) -> Computation:
    """Return the body without what becomes of the arrays: they stay what they were."""
    body, root = loop.body, loop.body.result
    [given] = body.parameters
    shape = given.shape
    assert isinstance(shape, TupleShape)
    kept = {
        k: Instruction(
            f"{root.name}.{k}", "get-tuple-element", shape.parts[k], (given.name,), {"index": k}
        )
        for k in loop.arrays
    }
    operands = tuple(kept[k].name if k in kept else o for k, o in enumerate(root.operands))
    needed = set[str]().union(*(_needed(body, o) for o in operands if o in body))
    inner = (i for i in body.instructions if i.name in needed or i.name == given.name)
    ended = (*inner, *kept.values(), root.reading(operands))
    return replace(body, instructions=ended)


def _fused(once: Computation, loop: _Loop, rounds: int) -> Computation:
    """Return the computation that calls a round so many times."""
    written = list(once.parameters)
    states, still = once.parameters[: len(loop.arrays)], once.parameters[len(loop.arrays) :]
    now = [p.name for p in states]
    for number in range(rounds):
        name = f"round.{number}"
        operands = (*now, *(p.name for p in still))
        call = Instruction(name, "call", once.result.shape, operands, {"to_apply": once.name})
        written.append(replace(call, span=once.span))
        now = [name]
        if len(states) > 1 and number + 1 < rounds:
            now = [f"{name}.{k}" for k in range(len(states))]
            written += (
                Instruction(n, "get-tuple-element", p.shape, (name,), {"index": k})
                for k, (n, p) in enumerate(zip(now, states, strict=True))
            )
    return Computation(once.name, tuple(written), written[-1].name, span=once.span)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes rounds into a computation, behind a state."""

    draft: Draft
    like: Instruction
    loop: _Loop
    count: str
    fused: Mapping[int, Computation]

    def write(self, state: str, each: Sequence[int]) -> str:
        """Write kernels of so many rounds each; return the state behind them."""
        shape = self.like.shape
        assert isinstance(shape, TupleShape)
        now: Sequence[str] = [self._part(state, k) for k in self.loop.arrays]
        still = [self._part(state, k) for k in self.loop.still]
        for rounds in each:
            now = self._fusion(self.fused[rounds], (*now, *still))
        counted = state
        for _ in range(sum(each)):
            attrs = {"to_apply": self.count}
            counted = self.draft.add(self.like, "call", shape, (counted,), attrs)
        made = dict(zip(self.loop.arrays, now, strict=True))
        parts = [made.get(k) or self._part(counted, k) for k in range(len(shape.parts))]
        return self.draft.add(self.like, "tuple", shape, parts)

    def _fusion(self, called: Computation, operands: Sequence[str]) -> Sequence[str]:
        attrs: dict[str, Attribute] = {"kind": "kCustom", "calls": called.name}
        shape = called.result.shape
        name = self.draft.add(self.like, "fusion", shape, operands, attrs)
        return self.draft.leaves(self.like, name)

    def _part(self, state: str, number: int) -> str:
        shape = self.like.shape
        assert isinstance(shape, TupleShape)
        part, attrs = shape.parts[number], {"index": number}
        return self.draft.add(self.like, "get-tuple-element", part, (state,), attrs)
