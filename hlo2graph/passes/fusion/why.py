"""What fusion decided, and why: for each kernel, and for each pair of kernels that stayed two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlo2graph.hlo import Computation, Module
from hlo2graph.ops.expect import integer
from hlo2graph.ops.region import Attention, SideBySide, region_of
from hlo2graph.ops.sweeps import Sweeps
from hlo2graph.ops.views import same_places
from hlo2graph.passes.fusion.body import TIED, VIEWS, Body
from hlo2graph.passes.fusion.group import Group
from hlo2graph.passes.fusion.merge import Merging, Node

RESULT = "is the result"
ALSO = "what it makes is read by other kernels too: another result"
SIBLING = "reads the same arrays: one pass over them"
ONLY_READER = "read here only"
COPIED = "cheap enough to be computed in each of the {} kernels that read it"
VIEW = "a view, which costs nothing: others that read it have it too"
ATTENTION = "attention, row by row of its scores"
ATTENDED = "attention takes in no work but that between its products"
SCORES = "scores, which are folded where they are computed and never stored"
WEIGHTS = "made of a block's scores, and never stored"
MADE = "made, or read where it lies, for a block's queries and keys"
STENCIL = "rounds of a stencil, on parts of the arrays in registers"
ROUND = "a round, whose results the next one finds in registers"
SWEPT = "as many rounds as gain by it are in one kernel already"
_WHY_MADE_BEFORE: Mapping[type, str] = {Sweeps: SWEPT, Attention: ATTENDED}

ROUNDS = "a barrier between rounds of the loop: no round is computed again in a later one"
UPDATES = "a barrier before the scatter, which updates in place what is made here"
BARRIER = "a barrier of the program is between them"


@dataclass(frozen=True, slots=True)
class Member:
    """An instruction of a kernel, and why it is there."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Together:
    """A kernel, by the name it has after fusion, and what it is made of."""

    kernel: str
    form: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """A kernel and one that reads it, and why they are two."""

    producer: str
    reader: str
    why: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """What fusion made of one computation."""

    computation: str
    together: tuple[Together, ...]
    apart: tuple[Apart, ...]


@dataclass(frozen=True, slots=True)
class Why:
    """What fusion decided in a module.

    launches: of a kernel (by computation and name) that runs beside others, the kernel of all.
    kept: why nothing was fused at all; '' where it was.
    """

    decisions: tuple[Decisions, ...]
    launches: Mapping[tuple[str, str], str]
    kept: str = ""


def launches_of(module: Module) -> dict[tuple[str, str], str]:
    """Return which kernel runs each part of those that do several things side by side."""
    found: dict[tuple[str, str], str] = {}
    for computation in module.computations.values():
        for instr in computation.instructions:
            if instr.opcode != "get-tuple-element":
                continue
            whole = computation[instr.operands[0]]
            if whole.opcode == "fusion":
                called = module.computations[next(whole.called())]
                if isinstance(region_of(called), SideBySide):
                    found[computation.name, instr.name] = whole.name
    return found


def attended(module: Module, computation: str) -> dict[str, Computation]:
    """Return the fusions that were made before, attention and loops, with what they call."""
    found = {}
    for instr in module.computations[computation].instructions:
        if instr.opcode == "fusion":
            called = module.computations[next(instr.called())]
            if isinstance(region_of(called), Attention | Sweeps):
                found[instr.name] = called
    return found


def decisions_of(
    computation: str,
    merging: Merging,
    named: Mapping[Group, str],
    made: Mapping[str, Computation],
) -> Decisions:
    """Return the decisions for a computation whose groups' kernels have these names.

    made: the fusions that were made before, with what they call.
    """
    groups = [n for n in merging.in_order() if isinstance(n, Group)]
    copies = Counter(name for group in groups for name in group.members)
    together = tuple(
        Together(named[group], group.form, tuple(_members(merging, group, copies)))
        for group in groups
    ) + tuple(_made_before(name, called) for name, called in made.items())
    pairs: dict[tuple[str, str], str] = {}
    for reader in merging.in_order():
        if merging.is_kernel(reader) and not _is_barrier(merging, reader):
            for producer, why in _apart(merging, reader):
                pair = _name(producer, named), _name(reader, named)
                known = next((made[name] for name in pair if name in made), None)
                region = region_of(known) if known is not None else None
                pairs.setdefault(pair, _WHY_MADE_BEFORE.get(type(region), why))
    apart = tuple(Apart(*pair, why) for pair, why in pairs.items())
    return Decisions(computation, together, apart)


def _made_before(name: str, called: Computation) -> Together:
    """Return what a fusion is that this pass has not made."""
    match region_of(called):
        case Sweeps():
            rounds = (i.name for i in called.instructions if i.opcode == "call")
            members = (Member(r, RESULT if r == called.root else ROUND) for r in rounds)
            return Together(name, STENCIL, tuple(members))
        case _:
            return Together(name, ATTENTION, _attending(called))


def _attending(computation: Computation) -> tuple[Member, ...]:
    """Return the members of attention, with what each is to it."""
    region = region_of(computation)
    assert isinstance(region, Attention)
    waiting = {region.weighing.scores}
    for instr in computation.instructions:
        if not waiting.isdisjoint(instr.operands):
            waiting.add(instr.name)

    def reason(name: str) -> str:
        if name in (computation.root, region.weighing.scores):
            return RESULT if name == computation.root else SCORES
        return WEIGHTS if name in waiting else MADE

    left_out = ("constant", "parameter")
    names = (i.name for i in computation.instructions if i.opcode not in left_out)
    return tuple(Member(name, reason(name)) for name in names)


def _members(merging: Merging, group: Group, copies: Mapping[str, int]) -> Iterator[Member]:
    """Yield the members with reasons that hold of the groups as they are after all merges."""
    for name in merging.body.in_order(group.members):
        if name in group.results:
            yield Member(name, _why_result(merging, group, name))
        elif merging.maker.get(name) == name:
            yield Member(name, VIEW)
        elif copies[name] > 1:
            yield Member(name, COPIED.format(copies[name]))
        else:
            yield Member(name, ONLY_READER)


def _why_result(merging: Merging, group: Group, name: str) -> str:
    """Return why a kernel makes one of its results, of which the last is what it is for."""
    if name == group.results[-1]:
        return RESULT
    is_read = not group.members.isdisjoint(merging.body.users.get(name, ()))
    return ALSO if is_read else SIBLING


def _apart(merging: Merging, reader: Node) -> Iterator[tuple[Node, str]]:
    """Yield the kernels that `reader` waits for, and why they are apart.

    Views and barriers, which are no kernels of the plan, are looked through.
    """
    for value in merging.reads(reader):
        view = barrier = None
        shown = value
        while (behind := _behind(merging, shown)) is not None:
            if not _is_barrier(merging, shown):
                view = shown
            shown, passed = behind
            barrier = barrier or passed
        producer = merging.maker[shown]
        if merging.is_kernel(producer):
            if barrier is not None:
                yield producer, _why_barrier(merging.body, barrier)
            else:
                yield producer, merging.why_apart(producer, reader, view)


def _behind(merging: Merging, value: str) -> tuple[str, str | None] | None:
    """Return what a node that is no kernel shows, and the barrier that it shows it through."""
    if merging.maker[value] != value:
        return None
    body = merging.body
    instr = body[value]
    if instr.opcode == "opt-barrier":
        return instr.operands[0], value
    if instr.opcode not in VIEWS:
        return None
    source, barrier = body[instr.operands[0]], None
    if instr.opcode == "get-tuple-element":
        while source.opcode == "opt-barrier":
            source, barrier = body[source.operands[0]], source.name
        if source.opcode == "tuple":
            return source.operands[integer(instr, "index")], barrier
    return source.name, barrier


def _is_barrier(merging: Merging, node: Node) -> bool:
    return isinstance(node, str) and merging.body[node].opcode == "opt-barrier"


def _why_barrier(body: Body, name: str) -> str:
    """Return what a barrier is for: of the program's own only those that do more are left."""
    barrier, users = body[name], (body[user].opcode for user in body.users[name])
    if body.barred[name] == TIED or not same_places(body[barrier.operands[0]].shape, barrier.shape):
        return BARRIER
    return UPDATES if "scatter" in users else ROUNDS


def _name(node: Node, named: Mapping[Group, str]) -> str:
    return named[node] if isinstance(node, Group) else node
