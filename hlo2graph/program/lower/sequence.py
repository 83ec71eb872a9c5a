"""Lowering one sequence: a computation, with all that it calls inlined, becomes flat thunks.

Calls nest without using Python's stack; loops and branches, which keep sequences of their own, do
use it, to a stated depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import AnyShape, Computation, Instruction, Literal, Module, Shape
from hlo2graph.ops.views import same_order
from hlo2graph.program import thunks
from hlo2graph.program.lower.calls import Calls
from hlo2graph.program.lower.kernels import KernelPool
from hlo2graph.program.lower.leaf import Leaf, Leaves, leaf_names, viewed
from hlo2graph.program.thunks import Kernel, Thunk, Value
from hlo2graph.program.uses import writes

DEEPEST = 64  # loops and branches inside one another


@dataclass(slots=True)
class Shared:
    """What all sequences of a module share while it is lowered."""

    module: Module
    calls: Calls
    pool: KernelPool
    names: set[str]  # of thunks, and all names of the entry, which come first
    constants: dict[Literal | int, tuple[Value, Literal]] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=count)
    _numbers: dict[str, int] = field(default_factory=dict)

    def fresh(self, shape: Shape, origin: str) -> Value:
        """Make a value."""
        return Value(next(self.ids), shape, origin)

    def unique(self, name: str, site: str) -> str:
        """Return `name`, or qualified by the instruction that calls, or numbered as well."""
        if name in self.names:
            name = f"{site}/{name}"
        stem = name
        while name in self.names:
            self._numbers[stem] = number = self._numbers.get(stem, 0) + 1
            name = f"{stem}.{number}"
        self.names.add(name)
        return name

    def constant(self, literal: Literal, name: str) -> Value:
        """Return the value that holds `literal`; equal ones share it, elided ones equal nothing."""
        key = id(literal) if literal.is_elided else literal
        if key not in self.constants:
            self.constants[key] = (self.fresh(literal.shape, name), literal)
        return self.constants[key][0]


@dataclass(slots=True)
class Frame:
    """A computation being inlined, `site` being the instruction that calls it."""

    computation: Computation
    arguments: Sequence[Leaves]
    site: str = ""  # '' for the entry
    after: tuple[str, ...] = ()
    env: dict[str, Leaves] = field(default_factory=dict)
    at: int = 0  # position of the next instruction
    began: int = 0  # thunks in the sequence when that call began
    watched: frozenset[str] = frozenset()  # the control-predecessors in this computation
    anchors: dict[str, tuple[str, ...]] = field(default_factory=dict)  # their thunks

    def __post_init__(self) -> None:
        self.watched = frozenset(
            name
            for instr in self.computation.instructions
            if "control-predecessors" in instr.attrs
            for name in control_predecessors(instr)
        )

    def operands(self, instr: Instruction) -> list[tuple[AnyShape, Leaves]]:
        """Return each operand's shape, for its structure, and its leaves."""
        return [(self.computation[o].shape, self.env[o]) for o in instr.operands]


class Builder:
    """Collects the thunks of one sequence."""

    def __init__(self, shared: Shared, depth: int = 0) -> None:
        self.shared = shared
        self.depth = depth
        self.thunks: list[Thunk[Value]] = []
        self.outer: dict[str, None] = {}  # thunks that the one around this sequence waits for
        self._here: set[str] = set()
        self._writers: dict[int, str] = {}

    def inner(self, instr: Instruction) -> Builder:
        """Return a builder for a sequence inside `instr`."""
        if self.depth == DEEPEST:
            raise UnsupportedError(
                f"{instr.name} is inside {DEEPEST} loops and conditionals, the most there can be",
                instr.span,
            )
        return Builder(self.shared, self.depth + 1)

    def name(self, instr: Instruction, frame: Frame) -> str:
        """Return the name of the thunk for `instr`, unlike any other's."""
        return self.shared.unique(instr.name, frame.site) if frame.site else instr.name

    def emit(self, thunk: Thunk[Value]) -> None:
        """Append a thunk."""
        self.thunks.append(thunk)
        self._here.add(thunk.name)
        self._writers.update((value.id, thunk.name) for value in writes(thunk))

    def sequence(
        self, params: tuple[Value, ...], results: tuple[Value, ...]
    ) -> thunks.Sequence[Value]:
        """Return what was collected."""
        return thunks.Sequence(tuple(self.thunks), params, results)

    def buffer(self, leaf: Leaf) -> Value:
        """Return the leaf's value; a constant gets one."""
        if leaf.value is not None:
            return leaf.value
        assert leaf.literal is not None
        return self.shared.constant(leaf.literal, leaf.name)

    def buffered(self, leaf: Leaf) -> Leaf:
        """Return a constant of more than one element as a value; other leaves as they are."""
        if leaf.literal is None or leaf.is_scalar_constant:
            return leaf
        return Leaf(leaf.shape, self.buffer(leaf), after=leaf.after)

    def view(self, leaf: Leaf, shape: Shape) -> Leaf:
        """Return the same bytes under another shape."""
        return viewed(self.buffered(leaf), shape)

    def laid_out(self, leaf: Leaf, shape: Shape, name: str, site: str) -> Value:
        """Return the leaf's value in the layout of `shape`, by a copy where it has another."""
        if same_order(leaf.shape, shape):
            return self.buffer(leaf)
        held = self.buffered(leaf)
        laid = leaf.shape.with_layout(shape.layout)
        copy = Instruction("copy", "copy", laid, ("p0",))
        computation, reads = self.shared.pool.wrap(copy, [(held.shape, (held,))])
        target = self.shared.fresh(laid, name)
        unique = self.shared.unique(f"{name}.relayout", site)
        values = tuple(map(self.buffer, reads))
        self.emit(Kernel(unique, computation, values, (target,), self.wait(leaf.after)))
        return target

    def wait(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return which of the thunks are in this sequence; the one around waits for the others."""
        self.outer.update((name, None) for name in names if name not in self._here)
        return tuple(dict.fromkeys(name for name in names if name in self._here))

    def results(self, instr: Instruction, name: str) -> Leaves:
        """Make a value for each leaf of `instr` that has bytes; `name` is its thunk's."""
        return tuple(
            Leaf(shape, after=(name,))
            if shape.dtype.name == "token"
            else Leaf(shape, self.shared.fresh(shape, origin))
            for shape, origin in zip(
                instr.shape.leaves(), leaf_names(instr.name, instr.shape), strict=True
            )
        )

    def after(self, instr: Instruction, frame: Frame, effect: bool = False) -> tuple[str, ...]:
        """Return what the thunk of `instr` waits for, data apart.

        Thunks with effects are ordered anyway, so that tokens say nothing more to them.
        """
        found = list(self.controls(instr, frame))
        for operand in instr.operands:
            for leaf in frame.env[operand]:
                if leaf.after and not (effect and leaf.is_token):
                    found += leaf.after
        return self.wait(found) if found else ()

    def controls(self, instr: Instruction, frame: Frame) -> tuple[str, ...]:
        """Return the thunks that stand for the control-predecessors of `instr`."""
        if "control-predecessors" not in instr.attrs:
            return frame.after
        anchors = (a for name in control_predecessors(instr) for a in frame.anchors.get(name, ()))
        return (*frame.after, *anchors)

    def anchor(self, leaves: Leaves, began: int) -> tuple[str, ...]:
        """Return the thunks that stand for an instruction, which were made since `began`.

        One that has none of its own is stood for by what makes its value.
        """
        made = tuple(thunk.name for thunk in self.thunks[began:])
        if made:
            return made
        writers = (self._writers.get(leaf.value.id) for leaf in leaves if leaf.value is not None)
        held = (name for leaf in leaves for name in leaf.after)
        return (*(writer for writer in writers if writer is not None), *held)


def control_predecessors(instr: Instruction) -> tuple[str, ...]:
    """Return the names in `control-predecessors`."""
    held = instr.attrs.get("control-predecessors", ())
    assert isinstance(held, tuple)
    return tuple(name for name in held if isinstance(name, str))


def metadata(instr: Instruction) -> str:
    """Return the instruction's metadata, verbatim."""
    return str(instr.attrs.get("metadata", ""))
