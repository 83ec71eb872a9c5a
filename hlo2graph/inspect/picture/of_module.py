"""A module as a picture: a node an instruction, an arrow an operand, called computations inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hlo2graph.errors import InputError
from hlo2graph.hlo import Computation, Instruction, Module
from hlo2graph.hlo.metadata import op_name, source_line
from hlo2graph.inspect.dot_labels import LONGEST_TOOLTIP, shape_text, shortened
from hlo2graph.inspect.figures import bytes_text, plural
from hlo2graph.inspect.picture.keys import Keys
from hlo2graph.inspect.picture.model import OUTERMOST, Arrow, Group, Node, Picture
from hlo2graph.ops import OPS
from hlo2graph.ops.spec import Lowering

DEEPEST = 64  # levels of frames in frames
CONTROL = "control-predecessors"
_MOVING = (
    *("broadcast", "concatenate", "dynamic-slice", "dynamic-update-slice", "gather", "iota"),
    *("pad", "reshape", "reverse", "slice", "transpose"),
)
_KINDS = {
    "parameter": "parameter",
    "constant": "constant",
    "fusion": "fusion",
    "while": "while",
    "conditional": "conditional",
    "call": "call",
    "custom-call": "library",
    **dict.fromkeys(_MOVING, "shaping"),
}


def picture_of_module(
    module: Module,
    *,
    depth: int | None = None,
    computation: str | None = None,
) -> Picture:
    """Return a module's instructions, as written.

    depth: how many levels of called computations to open; None opens all (of DEEPEST), 0 none. One
        that several instructions call is drawn inside the first of them.
    computation: only this one, and what it calls.

    Raises InputError for options that fit nothing.
    """
    if depth is not None and depth < 0:
        raise InputError("depth is 0 or more")
    name = module.entry_name if computation is None else computation
    if name not in module.computations:
        raise InputError(f"there is no computation {name}")
    maker = _Maker(module, Keys(module.computations), DEEPEST if depth is None else depth, {name})
    maker.pending.append((name, OUTERMOST, 0))
    for called, group, level in maker.pending:
        maker.add(module.computations[called], group, level)
    opcodes = Counter(instr.opcode for instr in module.computations[name].instructions)
    often = ", ".join(f"{count} {opcode}" for opcode, count in opcodes.most_common(6))
    total = plural(len(maker.nodes), "instruction")
    within = plural(1 + len(maker.groups), "computation")
    title = module.name if computation is None else f"{module.name}: {computation}"
    return Picture(
        (shortened(title), f"{total} in {within}", f"mostly {often}"),
        tuple(maker.nodes),
        tuple(maker.arrows),
        tuple(maker.groups),
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    module: Module
    keys: Keys
    depth: int
    drawn: set[str]  # computations that have a group, or wait for one
    pending: list[tuple[str, str, int]] = field(default_factory=list)  # their groups and levels
    nodes: list[Node] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def add(self, computation: Computation, group: str, level: int) -> None:
        """Add a computation's instructions, and to `pending` what they call."""
        ids = {
            instr.name: f"i{number}"
            for number, instr in enumerate(computation.instructions, len(self.nodes))
        }
        for instr in computation.instructions:
            id, called = ids[instr.name], dict.fromkeys(instr.called())
            opened = [c for c in called if c not in self.drawn and level < self.depth]
            self.drawn.update(opened)
            self.nodes.append(self._node(computation, instr, id, group, opened))
            self.arrows.extend(self._arrows(computation, instr, ids))
            for number, name in enumerate(opened):
                self.groups.append(Group(f"{id}_{number}", shortened(name), id, group))
                self.pending.append((name, f"{id}_{number}", level + 1))

    def _node(
        self, computation: Computation, instr: Instruction, id: str, group: str, opened: list[str]
    ) -> Node:
        lines = [instr.opcode, shortened(shape_text(instr.shape))]
        elsewhere = [name for name in dict.fromkeys(instr.called()) if name not in opened]
        lines += [shortened(f"calls {name}") for name in elsewhere]
        if instr.opcode == "parameter":
            lines[0] = f"parameter {instr.payload}"
        if instr.name == computation.root:
            lines.append("root")
        metadata = str(instr.attrs.get("metadata", ""))
        if source := source_line(self.module.tables, metadata):
            lines.append(shortened(source))
        tooltip = shortened(op_name(metadata) or instr.name, LONGEST_TOOLTIP)
        name, kind = shortened(instr.name), kind_of_opcode(instr.opcode)
        key = self.keys.instruction(instr)
        names = frozenset({instr.name, f"{computation.name}/{instr.name}"})
        return Node(id, name, kind, tuple(lines), tooltip, group, names, key)

    def _arrows(
        self, computation: Computation, instr: Instruction, ids: dict[str, str]
    ) -> Iterator[Arrow]:
        for name in dict.fromkeys(instr.operands):
            shape = computation[name].shape
            size = bytes_text(sum(leaf.size for leaf in shape.leaves()))
            yield Arrow(ids[name], ids[instr.name], "operand", size, shape_text(shape))
        before = instr.attrs.get(CONTROL)
        for first in before if isinstance(before, tuple) else ():
            if isinstance(first, str):
                yield Arrow(ids[first], ids[instr.name], "control", "control", CONTROL)


def kind_of_opcode(opcode: str) -> str:
    """Return what an instruction is, as far as colours tell."""
    if opcode in _KINDS:
        return _KINDS[opcode]
    spec = OPS[opcode]
    if spec.lowering in (Lowering.COLLECTIVE, Lowering.HOST_IO):
        return "collective"
    if spec.elementwise:
        return "elementwise"
    return "shaping" if spec.lowering in (Lowering.VIEW, Lowering.STRUCTURE) else "work"
