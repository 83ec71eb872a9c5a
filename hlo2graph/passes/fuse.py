"""Loop fusion: merge what is computed element by element into the kernel that consumes it.

In and out: a Module of the same meaning. The cost rule, all of it:

- An instruction joins its consumers' fusion when every consumer is in that one fusion and nothing
  but data orders it (no side effect, no control dependency, not the root). No value is then
  computed twice, and no path is lengthened: whoever needs the result waits for the same operands.
- What costs nothing to recompute (a scalar constant, its broadcast, an iota) joins each of its
  consumers' fusions.
- A fusion's root may be a reduction; everything inside is elementwise or moves indices.
- A fusion has at most MOST_INSTRUCTIONS instructions, so that a kernel stays compilable.
- What XLA has scheduled stays as it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hlo2graph.hlo import Attribute, Computation, Instruction, Module, Shape
from hlo2graph.ops import OPS
from hlo2graph.passes.sequences import sequences

MOST_INSTRUCTIONS = 256
INDEX_MOVING = frozenset({"broadcast", "reshape", "transpose", "slice", "iota", "reverse"})
ROOT_ONLY = frozenset({"reduce"})


def fuse(module: Module) -> Module:
    """Return `module` with fusions formed in every computation that becomes thunks."""
    if module.is_scheduled:
        return module
    stepped = sequences(module)
    taken = {name for c in module.computations.values() for name in (c.name, *_names(c))}
    computations: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        if name in stepped:
            fusions, computation = _Fuser(computation, taken).run()
            computations |= fusions
        computations[name] = computation
    return replace(module, computations=computations)


def _names(computation: Computation) -> list[str]:
    return [i.name for i in computation.instructions]


@dataclass(slots=True)
class _Group:
    """A fusion being formed: members in reverse order, the root first."""

    members: list[Instruction] = field(default_factory=list)


class _Fuser:
    """Forms the fusions of one computation, from its last instruction to its first."""

    def __init__(self, computation: Computation, taken: set[str]) -> None:
        self.computation = computation
        self.taken = taken
        self.group: dict[str, _Group] = {}
        self.users: dict[str, list[Instruction]] = {}
        held = set[str]()
        for instr in computation.instructions:
            for operand in dict.fromkeys(instr.operands):
                self.users.setdefault(operand, []).append(instr)
            controls = instr.attrs.get("control-predecessors", ())
            if controls and isinstance(controls, tuple):
                held |= {instr.name, *(str(c) for c in controls)}
        self.held = held

    def run(self) -> tuple[dict[str, Computation], Computation]:
        """Return the fused computations and what is left of this one."""
        for instr in reversed(self.computation.instructions):
            if instr.name in self.held or not _fusible(instr):
                continue
            target = self._consumer_group(instr)
            if target is None:
                self.group[instr.name] = _Group([instr])
            elif not _is_free(instr, self.computation):
                target.members.append(instr)
                self.group[instr.name] = target
        return self._rewrite()

    def _consumer_group(self, instr: Instruction) -> _Group | None:
        """Return the one fusion that all consumers are in, if `instr` may join it."""
        if instr.name == self.computation.root or instr.opcode in ROOT_ONLY:
            return None
        groups = [self.group.get(u.name) for u in self.users.get(instr.name, ())]
        first = groups[0] if groups else None
        if first is None or any(g is not first for g in groups):
            return None
        return first if len(first.members) < MOST_INSTRUCTIONS else None

    def _rewrite(self) -> tuple[dict[str, Computation], Computation]:
        fusions: dict[str, Computation] = {}
        renamed: dict[str, str] = {}
        inside: set[str] = set()
        replaced: dict[str, Instruction] = {}
        for group in {id(g): g for g in self.group.values()}.values():
            root = group.members[0]
            body = self._with_free(group)
            if sum(i.opcode not in ("constant", "reshape") for i in body) < 2:
                continue
            name = self._fresh(f"{root.opcode}_fusion")
            fused, operands = _outline(self.computation, body, self._fresh(f"fused_{root.name}"))
            fusions[fused.name] = fused
            renamed[root.name] = name
            inside |= {i.name for i in group.members[1:]}
            kind = "kInput" if root.opcode in ROOT_ONLY else "kLoop"
            attrs: dict[str, Attribute] = {"kind": kind, "calls": fused.name}
            attrs |= {k: v for k, v in root.attrs.items() if k == "metadata"}
            replaced[root.name] = Instruction(
                name, "fusion", root.shape, operands, attrs, span=root.span
            )
        kept = tuple(
            _with_operands(replaced.get(i.name, i), renamed)
            for i in self.computation.instructions
            if i.name not in inside
        )
        root_name = renamed.get(self.computation.root, self.computation.root)
        return fusions, replace(self.computation, instructions=kept, root=root_name)

    def _with_free(self, group: _Group) -> list[Instruction]:
        """Return the members in program order, with the free instructions they use."""
        names = {i.name for i in group.members}
        pending = list(group.members)
        while pending:
            for operand in pending.pop().operands:
                producer = self.computation[operand]
                if operand in names or operand in self.held:
                    continue
                if _is_free(producer, self.computation):
                    names.add(operand)
                    pending.append(producer)
        return [i for i in self.computation.instructions if i.name in names]

    def _fresh(self, stem: str) -> str:
        name, count = stem, 0
        while name in self.taken:
            count += 1
            name = f"{stem}.{count}"
        self.taken.add(name)
        return name


def _fusible(instr: Instruction) -> bool:
    if not isinstance(instr.shape, Shape) or instr.shape.dynamic:
        return False
    spec = OPS[instr.opcode]
    return not spec.effect and (
        spec.elementwise or instr.opcode in INDEX_MOVING or instr.opcode in ROOT_ONLY
    )


def _is_free(instr: Instruction, computation: Computation) -> bool:
    """A scalar constant, an iota, or a broadcast of one: nothing is lost by making it twice."""
    while instr.opcode in ("broadcast", "reshape"):
        instr = computation[instr.operands[0]]
    scalar = isinstance(instr.shape, Shape) and instr.shape.elements == 1
    return instr.opcode == "iota" or (instr.opcode == "constant" and scalar)


def _outline(
    computation: Computation, body: list[Instruction], name: str
) -> tuple[Computation, tuple[str, ...]]:
    """Return `body` as a computation, and the names it needs from outside, in order of use."""
    inner = {i.name for i in body}
    outside = tuple(dict.fromkeys(o for i in body for o in i.operands if o not in inner))
    parameters = [
        replace(
            computation[o], opcode="parameter", operands=(), attrs={}, payload=k, name=_param(o, k)
        )
        for k, o in enumerate(outside)
    ]
    names = {o: p.name for o, p in zip(outside, parameters, strict=True)}
    moved = tuple(_with_operands(i, names) for i in body)
    return Computation(name, (*parameters, *moved), body[-1].name, span=body[-1].span), outside


def _param(operand: str, number: int) -> str:
    return f"param_{number}.{operand}"


def _with_operands(instr: Instruction, names: Mapping[str, str]) -> Instruction:
    if not any(o in names for o in instr.operands):
        return instr
    return replace(instr, operands=tuple(names.get(o, o) for o in instr.operands))
