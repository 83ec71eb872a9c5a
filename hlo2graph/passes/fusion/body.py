"""A computation whose kernels are to be fused: who uses what, and what may be part of a fusion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from hlo2graph.hlo import Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_call import takes_in
from hlo2graph.ops.device import NoDevice, device_of
from hlo2graph.ops.effects import has_effect
from hlo2graph.ops.own_dot import runs_as_own_kernel
from hlo2graph.ops.spec import Lowering
from hlo2graph.passes.join import controls, waits_of

VIEWS = frozenset({"bitcast", "get-tuple-element", "reshape"})
TIED = "control dependencies tie it"
_AT_THE_END = frozenset({"bitcast", "reshape"})
_ALONE = frozenset({"custom-call", "fusion", "rng"})  # rng: its name decides what it draws
_KERNELS = (Lowering.KERNEL, Lowering.VIEW)


@dataclass(frozen=True, slots=True)
class Outline:
    """Members as a computation: a root, or a tuple of several `results`; `operands` go in.

    Views at the edges stay outside, where they cost nothing and no index is worked out for them.
    """

    computation: Computation
    operands: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(slots=True)
class Body:
    """One computation, indexed.

    place: the number of each instruction. live: what anything needs. users: the live ones.
    free: what costs nothing to compute again. barred: why an instruction can be part of no fusion.
    carried: of a loop's body, the state that each result is the next of.
    waits: what each waits for: operands, control dependencies, earlier side effects.
    kept: whose bytes nothing may write over.
    exact: the regions that fold to the same bits in any order.
    """

    computation: Computation
    named: Mapping[str, Instruction]
    waits: Mapping[str, tuple[str, ...]]
    carried: Mapping[str, str]
    kept: frozenset[str] = frozenset()
    exact: frozenset[str] = frozenset()
    place: dict[str, int] = field(default_factory=dict)
    users: dict[str, list[str]] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)
    barred: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(
        computation: Computation,
        effects: frozenset[str],
        carried: Mapping[str, str] | None = None,
        kept: frozenset[str] = frozenset(),
        exact: frozenset[str] = frozenset(),
    ) -> Body:
        """Return the body of `computation`; `effects` are the computations with side effects."""
        named = {instr.name: instr for instr in computation.instructions}
        waits = waits_of(computation.instructions, effects)
        found = Body(computation, named, waits, carried or {}, kept, exact)
        early = _copied_early(found)
        held: set[str] = set()
        for number, instr in enumerate(computation.instructions):
            found.place[instr.name] = number
            if before := controls(instr):
                held |= {instr.name, *before}
        for instr in computation.instructions:
            if instr.name in held:
                found.barred[instr.name] = TIED
            elif instr.name in early:
                found.barred[instr.name] = "it is copied while what is put there is made"
            elif reason := _why_barred(found, instr):
                found.barred[instr.name] = reason
            elif _is_free(found, instr):
                found.free.add(instr.name)
        found._find_users()
        return found

    def _find_users(self) -> None:
        pending = [self.computation.root, *self.barred]
        while pending:
            name = pending.pop()
            if name not in self.live:
                self.live.add(name)
                pending += self[name].operands
        for name in self.in_order(self.live):
            for operand in dict.fromkeys(self[name].operands):
                self.users.setdefault(operand, []).append(name)

    def __getitem__(self, name: str) -> Instruction:
        return self.named[name]

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return names in program order."""
        return sorted(names, key=self.place.__getitem__)

    def outline(self, members: Set[str], results: Sequence[str], name: str) -> Outline:
        """Return `members` as a computation with these results; what is free comes in too."""
        results = tuple(dict.fromkeys(self._behind_views(r, members) for r in results))
        inside = [self[n] for n in self.in_order(self._reached(members, results))]
        names = {i.name for i in inside}
        outside = tuple(dict.fromkeys(o for i in inside for o in i.operands if o not in names))
        parameters = [
            Instruction(f"param_{k}.{o}", "parameter", self[o].shape, payload=k, span=self[o].span)
            for k, o in enumerate(outside)
        ]
        given = {o: p.name for o, p in zip(outside, parameters, strict=True)}
        made = [*parameters, *(with_operands(i, given) for i in inside)]
        root = results[0]
        if len(results) > 1:
            shape = TupleShape(tuple(self[r].shape for r in results))
            made.append(Instruction(f"results.{name}", "tuple", shape, results))
            root = made[-1].name
        span = self[results[0]].span
        return Outline(Computation(name, tuple(made), root, span=span), outside, results)

    def _behind_views(self, name: str, members: Set[str]) -> str:
        while self[name].opcode in _AT_THE_END and self[name].operands[0] in members:
            name = self[name].operands[0]
        return name

    def _reached(self, members: Set[str], results: Iterable[str]) -> set[str]:
        """Return what the results take of the members, views of what comes in left out."""
        edge: set[str] = set()
        for name in self.in_order(members):
            source = self[name].operands[:1]
            if self[name].opcode in VIEWS and (source[0] not in members or source[0] in edge):
                edge.add(name)
        found = set(results)
        pending = list(found)
        while pending:
            for operand in self[pending.pop()].operands:
                inside = operand in self.free or (operand in members and operand not in edge)
                if inside and operand not in found:
                    found.add(operand)
                    pending.append(operand)
        return found


def keeps_arguments(module: Module, computation: Computation) -> bool:
    """Tell whether it is the entry, none of whose parameters is donated."""
    return computation.name == module.entry_name and "input_output_alias" not in module.attrs


def _copied_early(body: Body) -> set[str]:
    """Return the copies of what is kept that are for nothing but updates in place."""
    found = {
        instr.name
        for instr in body.computation.instructions
        if instr.opcode == "copy" and instr.operands[0] in body.kept
    }
    for instr in body.computation.instructions:
        updated = instr.operands[:1] if instr.opcode == "dynamic-update-slice" else ()
        found.difference_update(set(instr.operands).difference(updated))
    return found


def with_operands(instr: Instruction, names: dict[str, str]) -> Instruction:
    """Return `instr` with operands renamed."""
    if not any(o in names for o in instr.operands):
        return instr
    return instr.reading(tuple([names.get(o, o) for o in instr.operands]))


def _why_barred(body: Body, instr: Instruction) -> str | None:
    """Return why `instr` can be part of no fusion."""
    match instr.opcode:
        case "get-tuple-element":
            return body.barred.get(instr.operands[0])
        case "constant" | "parameter" | "tuple" as opcode:
            return None if _is_free(body, instr) else f"a {opcode} is no kernel"
        case opcode if opcode in _ALONE and not takes_in(instr):
            return f"a {opcode} stays as it was written"
        case _:
            return _why_no_kernel(body, instr)


def _why_no_kernel(body: Body, instr: Instruction) -> str | None:
    """Return why an operation of the program is no kernel of ours."""
    spec = OPS[instr.opcode]
    shapes = [leaf for o in instr.operands for leaf in body[o].shape.leaves()]
    if has_effect(instr):
        return "it has a side effect"
    if spec.lowering not in _KERNELS or isinstance(device_of(spec.device, instr), NoDevice):
        return f"{instr.opcode} is no kernel"
    if any(leaf.dynamic for leaf in (*shapes, *instr.shape.leaves())):
        return "its size is known at run time only"
    if instr.opcode == "bitcast" and instr.shape.size and not _keeps_width(body, instr):
        return "it looks at the bytes of elements"
    if instr.opcode == "dot" and not runs_as_own_kernel(instr, shapes[0], shapes[-1]):
        return "a library multiplies"
    return None


def _keeps_width(body: Body, instr: Instruction) -> bool:
    source, target = body[instr.operands[0]].shape, instr.shape
    if not isinstance(source, Shape) or not isinstance(target, Shape):
        return False
    return source.elements == target.elements


def _is_free(body: Body, instr: Instruction) -> bool:
    """A scalar constant, an iota, or a broadcast of one: nothing is lost by making it twice."""
    if instr.opcode in ("broadcast", "reshape"):
        return instr.operands[0] in body.free
    scalar = isinstance(instr.shape, Shape) and instr.shape.elements == 1
    return instr.opcode == "iota" or (instr.opcode == "constant" and scalar)
