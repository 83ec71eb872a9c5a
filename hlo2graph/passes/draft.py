"""A computation while it is being rewritten: instructions by name, and who uses them.

A draft keeps no order. `done` gives the computation back with each instruction behind what it
depends on, survivors in the order they were written in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hlo2graph.hlo import (
    AnyShape,
    Attribute,
    Computation,
    Instruction,
    Literal,
    Shape,
    TupleShape,
)
from hlo2graph.ops.effects import has_effect
from hlo2graph.passes.names import Names

_NONE: dict[str, None] = {}
_ENDS = frozenset({"async-done", "async-update"})  # which a start that stays cannot be without


class Draft:
    """The instructions of one computation, changed in place.

    `held` are the instructions that control dependencies tie, in either role: they stay. `touched`
    collects, in order, whose operands or users have changed.
    """

    def __init__(
        self,
        computation: Computation,
        computations: Mapping[str, Computation],
        effects: frozenset[str],
    ) -> None:
        self.computation = computation
        self.computations = computations  # all that can be called
        self.root = computation.root
        self._instructions = {i.name: i for i in computation.instructions}
        self._late: dict[str, dict[str, str]] = {}  # by reader, what it is yet to read instead
        self.users: dict[str, dict[str, None]] = {}
        self.held: set[str] = set()
        self.touched: dict[str, None] = {}
        self.changed = False
        self._effects = effects  # computations with side effects
        self._names = Names(self._instructions)
        for instr in computation.instructions:
            for operand in instr.operands:
                self.users.setdefault(operand, {})[instr.name] = None
            if "control-predecessors" in instr.attrs:
                self.held |= {instr.name, *controls(instr)}
        for instr in reversed(computation.instructions):
            self.drop_if_dead(instr.name)

    def __getitem__(self, name: str) -> Instruction:
        if name in self._late:
            self._settle(name)
        return self._instructions[name]

    def __contains__(self, name: str) -> bool:
        return name in self._instructions

    @property
    def instructions(self) -> Mapping[str, Instruction]:
        """The instructions by name, as they are now."""
        for name in tuple(self._late):
            self._settle(name)
        return self._instructions

    def operands(self, instr: Instruction) -> list[Instruction]:
        """Return the instructions that `instr` reads."""
        return [self[o] for o in instr.operands]

    def shape(self, name: str) -> Shape:
        """Return the shape of an array."""
        shape = self._instructions[name].shape
        assert isinstance(shape, Shape)
        return shape

    def users_of(self, name: str) -> list[Instruction]:
        """Return the instructions that read `name`."""
        return [self[u] for u in self.users.get(name, _NONE)]

    def is_pure(self, instr: Instruction) -> bool:
        """Tell whether `instr` only gives a value, so that it may be left out or moved."""
        return (
            instr.opcode != "parameter"
            and instr.name not in self.held
            and not has_effect(instr)
            and not (self._effects and any(c in self._effects for c in instr.called()))
            and (instr.opcode not in _ENDS or self.is_pure(self[instr.operands[0]]))
        )

    def add(
        self,
        like: Instruction,
        opcode: str,
        shape: AnyShape,
        operands: Sequence[str] = (),
        attrs: Mapping[str, Attribute] | None = None,
        payload: int | Literal | None = None,
    ) -> str:
        """Add an instruction that comes of `like`, whose place in the source it has."""
        name = self.fresh(f"{like.name}.{opcode}")
        made = Instruction(
            name, opcode, shape, tuple(operands), _with_source(attrs, like), payload, like.span
        )
        self._instructions[name] = made
        self._use(made)
        self.touched[name] = None
        self.changed = True
        return name

    def leaves(self, like: Instruction, name: str) -> tuple[str, ...]:
        """Return the arrays that `name` is: itself, or a tuple's parts, which are added."""
        shape = self[name].shape
        if isinstance(shape, Shape):
            return (name,)
        assert isinstance(shape, TupleShape)
        return tuple(
            self.add(like, "get-tuple-element", part, (name,), {"index": number})
            for number, part in enumerate(shape.parts)
        )

    def become(self, name: str, made: Instruction) -> None:
        """Put `made`, of the same name and shape, into the place of an instruction."""
        before = self[name]
        assert made.name == name
        self._instructions[name] = made
        self._use(made)
        self.changed = True
        self.touched[name] = None
        self.touched.update(self.users.get(name, _NONE))
        self._release(before, set(made.operands))

    def redirect(self, name: str, value: str) -> None:
        """Let all who read `name` read `value` instead, and drop `name`.

        A reader is written anew when it is next looked at, once for all that became of its
        operands: it may be a tuple of thousands.
        """
        self.changed = True
        for user in tuple(self.users.pop(name, _NONE)):
            if value in self._late.get(user, _NONE):
                self._settle(user)
            self._late.setdefault(user, {})[name] = value
            self.users.setdefault(value, {})[user] = None
            self.touched[user] = None
        if self.root == name:
            self.root = value
        self.touched[value] = None
        self.drop_if_dead(name)

    def drop_if_dead(self, name: str) -> None:
        """Drop an instruction that nothing needs, and then what it alone needed."""
        pending = [name]
        while pending:
            name = pending.pop()
            instr = self._instructions.get(name)
            if instr is None or self.users.get(name) or name == self.root:
                continue
            if not self.is_pure(instr):
                continue
            instr = self[name]
            del self._instructions[name]
            self.changed = True
            self.users.pop(name, None)
            self.touched.pop(name, None)
            for operand in dict.fromkeys(instr.operands):
                self.users[operand].pop(name)
                self.touched[operand] = None
                pending.append(operand)

    def fresh(self, stem: str) -> str:
        """Return a name like `stem` that no instruction has, or had."""
        return self._names.fresh(stem)

    def done(self) -> Computation:
        """Return the computation; the one that the draft began with if nothing was changed."""
        if not self.changed:
            return self.computation
        ordered: dict[str, Instruction] = {}
        instructions = self.instructions
        for name in instructions:
            stack = [name]
            while stack:
                top = stack[-1]
                missing = [n for n in self._before(instructions[top]) if n not in ordered]
                if top in ordered or not missing:
                    ordered.setdefault(stack.pop(), instructions[top])
                else:
                    stack += reversed(missing)
        return replace(self.computation, instructions=tuple(ordered.values()), root=self.root)

    def _before(self, instr: Instruction) -> Iterable[str]:
        if instr.name not in self.held:
            return instr.operands
        return (*instr.operands, *controls(instr))

    def _settle(self, name: str) -> None:
        """Let a reader read what its operands were redirected to."""
        late = self._late.pop(name)
        for before, after in reversed(late.items()):  # what became of `after` was noted later
            late[before] = late.get(after, after)
        reader = self._instructions[name]
        operands = tuple(late.get(o, o) for o in reader.operands)
        self._instructions[name] = reader.reading(operands)

    def _use(self, instr: Instruction) -> None:
        for operand in instr.operands:
            self.users.setdefault(operand, {})[instr.name] = None

    def _release(self, reader: Instruction, still: set[str]) -> None:
        """Note that `reader` no longer reads its operands, but for those in `still`."""
        for operand in dict.fromkeys(reader.operands):
            if operand not in still:
                self.users[operand].pop(reader.name)
                self.touched[operand] = None
                self.drop_if_dead(operand)


def is_settled(shape: AnyShape) -> bool:
    """Tell whether no size in `shape` is left to run time."""
    if isinstance(shape, TupleShape):
        return all(map(is_settled, shape.parts))
    return not shape.dynamic and min(shape.dims, default=0) >= 0


def _with_source(attrs: Mapping[str, Attribute] | None, like: Instruction) -> dict[str, Attribute]:
    kept: dict[str, Attribute] = dict(attrs or {})
    if "metadata" in like.attrs:
        kept.setdefault("metadata", like.attrs["metadata"])
    return kept


def controls(instr: Instruction) -> tuple[str, ...]:
    """Return the names in `control-predecessors`."""
    held = instr.attrs.get("control-predecessors", ())
    assert isinstance(held, tuple)
    return tuple(name for name in held if isinstance(name, str))
