"""Write the C++ of one element of a computation's result.

The emitter walks from a result back to the parameters, asking each instruction's device rule for
its element at an index; what was computed once at an index in an enclosing scope is used again.
Calls and nested fusions are walked through as if their instructions stood in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hlo2graph.backends.cuda.ctypes import compute_type, scalar_literal, storage_type, stored
from hlo2graph.backends.cuda.depth import MOST_LINES
from hlo2graph.backends.cuda.literals import NamedLiteral, array_words, scalar_of
from hlo2graph.backends.cuda.parts import Parts
from hlo2graph.backends.cuda.places import Places
from hlo2graph.backends.cuda.tuples import first_leaf, part_of, width_of
from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import Computation, DType, Instruction, Literal, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.device import (
    STRUCTURE,
    ByLeaf,
    DeviceRule,
    Element,
    Expr,
    Index,
    NoDevice,
    OwnKernel,
    device_of,
)

DEEPEST_INDENT = 40  # or the text of deep nests grows with the square of their depth

_CONVERTED = re.compile(r"hlo::convert<[\w:]+>\((?P<value>\w+)\)")

_Key = tuple[int, str, Index, int]


@dataclass(slots=True)
class _Scope:
    """A C++ block: what was computed in it is forgotten when it closes."""

    known: dict[_Key, Expr] = field(default_factory=dict)


@dataclass(slots=True)
class _Frame:
    """One activation of a computation: how to get its parameters' elements.

    From the kernel's pointers; from `arguments`, where a region of scalars is called; or, where
    `site` is a fusion or call inside `caller`, from the site's operands.
    """

    id: int
    computation: Computation
    arguments: tuple[Expr, ...] | None = None
    caller: _Frame | None = None
    site: Instruction | None = None


class ElementEmitter:
    """Collects the lines of a kernel's body."""

    def __init__(
        self,
        computations: Mapping[str, Computation],
        index_type: str,
        rules: Mapping[str, DeviceRule] | None = None,
    ) -> None:
        """Take device rules that stand in place of some opcodes' own."""
        self.computations = computations
        self._rules = rules or {}
        self.index_type = index_type
        self.lines: list[str] = []
        self.places = Places(self)
        self.split = self.places.split
        self.offset = self.places.offset
        self.element_at = self.places.element_at
        self._depth = 1
        self._scopes = [_Scope()]
        self._frames: list[_Frame] = []
        self._inlined: dict[tuple[int, str], _Frame] = {}
        self._count = 0
        self._names = 0
        self._read: dict[Expr, tuple[DType, str]] = {}
        self._floats: dict[Expr, DType] = {}  # constants of float
        self._rounded: dict[Expr, tuple[DType, Expr]] = {}  # of them, to narrower types
        self.origins: dict[Expr, tuple[int, Shape, Index]] = {}  # of values: parameter and index
        self.parts = Parts()
        self.first_block = 0
        self.binds_reads = True  # not where only the origins of values count

    # ---- what rules use (ops.device.Element) ----------------------------------------------

    def bind(self, dtype: DType, expression: str) -> Expr:
        """Declare a constant local of `dtype`'s compute type."""
        kind = compute_type(dtype)
        value = self._declare(f"const {kind}", expression, "v")
        if kind in ("float", "hlo::f32"):
            self._floats[value] = dtype
            converted = _CONVERTED.fullmatch(expression)
            if converted and converted["value"] in self._floats:
                self._rounded[value] = dtype, converted["value"]
        return value

    def read(self, dtype: DType, place: str) -> Expr:
        """Declare a constant local for an element of `dtype` that lies at `place`."""
        value = f"hlo::load({place})"
        if self.binds_reads:
            value = self.bind(dtype, value)
        self._read[value] = dtype, place
        return value

    def unrounded(self, dtype: DType, value: Expr) -> Expr:
        """Return the float that gives the same as `value` when it is rounded to a narrow `dtype`.

        That is what was converted to this very type: to round once more changes nothing.
        """
        known = self._rounded.get(value)
        return known[1] if known and known[0] == dtype else value

    def is_narrow(self, value: Expr) -> bool:
        """Tell whether a constant is of a float type that locals widen."""
        return value in self._floats and self._floats[value].bits < 32

    def stored(self, dtype: DType, value: Expr) -> Expr:
        """Return a value as it lies in memory; what was read, and is the same still, as it was.

        To widen and round it again would take longer than to move it.
        """
        value = self.unrounded(dtype, value)
        if not self.is_narrow_still(dtype, value):
            return stored(dtype, value)
        return self._declare(f"const {storage_type(dtype)}", self._read[value][1], "b")

    def is_narrow_still(self, dtype: DType, value: Expr) -> bool:
        """Tell whether a value of a type that locals widen is what was read, and no more."""
        widens = compute_type(dtype) != storage_type(dtype)
        return widens and value in self._read and self._read[value][0] == dtype

    def variable(self, dtype: DType, initial: str) -> Expr:
        """Declare a local that later lines may assign."""
        return self._declare(compute_type(dtype), initial, "m")

    def integer(self, expression: str) -> Expr:
        """Declare a constant local of the kernel's index type."""
        if expression.isdigit():
            return expression
        name = self._declare(f"const {self.index_type}", expression, "i")
        return self.parts.note(name, expression)

    @property
    def block_index(self) -> Expr:
        """The block's number among those behind `first_block`, in the kernel's index type."""
        wide = "" if self.index_type == "int" else f"({self.index_type})"
        behind = f"(blockIdx.x - {self.first_block})" if self.first_block else "blockIdx.x"
        return f"{wide}{behind}"

    def fresh(self, stem: str) -> Expr:
        """Return a name that nothing else in the kernel has."""
        self._names += 1
        return f"{stem}{self._names}"

    def line(self, text: str) -> None:
        """Write one statement."""
        self.lines.append("  " * min(self._depth, DEEPEST_INDENT) + text)
        if len(self.lines) > MOST_LINES:
            computation = self._frames[0].computation
            raise UnsupportedError(
                f"the kernel of {computation.name} grows past {MOST_LINES} lines",
                computation.result.span or computation.span,
            )

    @contextmanager
    def block(self, head: str, tail: str = "") -> Iterator[None]:
        """Write `head {`, what the context writes, and `}` with `tail`."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        self._scopes.append(_Scope())
        yield
        self._scopes.pop()
        self._depth -= 1
        self.line("}" + tail)

    # ---- walking --------------------------------------------------------------------------

    def enter(self, computation: Computation, arguments: tuple[Expr, ...] | None = None) -> None:
        """Make `computation` the one whose instructions `leaves` computes."""
        self._frames.append(self._frame(computation, arguments))

    def leave(self) -> None:
        """Return to the computation around the innermost one."""
        self._frames.pop()

    def call(self, computation: str, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the result leaves of a region of scalars, given its arguments."""
        called = self.computations[computation]
        self.enter(called, tuple(arguments))
        result = self.leaves(called.root, ())
        self.leave()
        return result

    def assume(self, name: str, index: Index, leaves: Sequence[Expr]) -> None:
        """Take `leaves` for the element of an instruction at `index`, in this block."""
        frame = self._frames[-1]
        for number, leaf in enumerate(leaves):
            self._scopes[-1].known[frame.id, name, index, number] = leaf

    def operands_of(self, instr: Instruction) -> Element:
        """Return the emitter as the rule of `instr`, of the innermost computation, sees it."""
        return _Operands(self, self._frames[-1], instr)

    def leaves(self, name: str, index: Index) -> tuple[Expr, ...]:
        """Return the element at `index` of each array leaf of an instruction."""
        width = width_of(self._frames[-1].computation[name])
        return tuple([self.leaf(name, number, index) for number in range(width)])

    def leaf(self, name: str, number: int, index: Index) -> Expr:
        """Return the element at `index` of one leaf; only that leaf's own producer is computed."""
        self._settle(name, index)
        return self._leaf(self._frames[-1], name, number, index)

    def _settle(self, name: str, index: Index) -> None:
        """Compute what `name` needs at its own index, operands first.

        So a chain of elementwise instructions, however long, does not nest Python's calls.
        """
        frame = self._frames[-1]
        stack = [name]
        while stack:
            instr = frame.computation[stack[-1]]
            if not _is_pointwise(instr) or self._known(_key(frame, instr, index)):
                stack.pop()
                continue
            waiting = [
                o
                for o in instr.operands
                if _is_pointwise(inner := frame.computation[o])
                and not self._known(_key(frame, inner, index))
            ]
            if waiting:
                stack.extend(reversed(waiting))
            else:
                self._leaf(frame, stack.pop(), 0, _key(frame, instr, index)[2])

    def _known(self, key: _Key) -> Expr | None:
        for scope in reversed(self._scopes):
            if key in scope.known:
                return scope.known[key]
        return None

    def _leaf(self, frame: _Frame, name: str, number: int, index: Index) -> Expr:
        key = (frame.id, name, index, number)
        if (known := self._known(key)) is not None:
            return known
        found = self._compute(frame, frame.computation[name], number, index)
        leaves = (found,) if isinstance(found, str) else found
        first = number if isinstance(found, str) else 0
        for at, leaf in enumerate(leaves, first):
            self._scopes[-1].known[frame.id, name, index, at] = leaf
        return leaves[number - first]

    def _compute(
        self, frame: _Frame, instr: Instruction, number: int, index: Index
    ) -> Expr | tuple[Expr, ...]:
        """Return the element of leaf `number`, or those of all leaves at once."""
        if instr.opcode in STRUCTURE:
            return self._through(frame, instr, number, index)
        rule = device_of(self._rules.get(instr.opcode, OPS[instr.opcode].device), instr)
        assert not isinstance(rule, OwnKernel | NoDevice), f"{instr.opcode} inside a loop"
        operands = _Operands(self, frame, instr)
        if isinstance(rule, ByLeaf):
            return rule.rule(operands, instr, number, index)
        return rule(operands, instr, index)

    def _through(self, frame: _Frame, instr: Instruction, number: int, index: Index) -> Expr:
        """Return an element of what only hands on, or holds, the elements of others."""
        match instr.opcode:
            case "parameter":
                return self._parameter(frame, instr, number, index)
            case "constant":
                return self._constant(instr, index)
            case "fusion" | "call":
                return self._walk_into(frame, instr, number, index)
            case "tuple":
                operand, number = part_of(frame.computation, instr, number)
                return self.leaf(operand, number, index)
            case "get-tuple-element":
                number += first_leaf(frame.computation[instr.operands[0]], instr)
            case _:
                pass
        return self.leaf(instr.operands[0], number, index)

    def _parameter(self, frame: _Frame, instr: Instruction, number: int, index: Index) -> Expr:
        assert isinstance(instr.payload, int)
        if frame.arguments is not None:  # a tuple is the only parameter
            return frame.arguments[instr.payload + number]
        if frame.site is not None and frame.caller is not None:
            self._frames.append(frame.caller)
            found = self.leaf(frame.site.operands[instr.payload], number, index)
            self._frames.pop()
            return found
        assert isinstance(instr.shape, Shape)
        value = self.read(instr.shape.dtype, self.place_of(instr.payload, instr.shape, index))
        self.origins[value] = instr.payload, instr.shape, index
        return value

    def place_of(self, number: int, shape: Shape, index: Index) -> Expr:
        """Return where the element at `index` of the kernel's parameter `number` lies."""
        array, within = self.parts.of(f"p{number}", shape, index)
        return f"{array}[{self.offset(shape, within)}]"

    def _walk_into(self, frame: _Frame, site: Instruction, number: int, index: Index) -> Expr:
        """Return an element of a nested fusion or call; each is one frame, so nothing is redone."""
        key = (frame.id, site.name)
        if key not in self._inlined:
            called = self.computations[next(iter(site.called()))]
            self._inlined[key] = self._frame(called, None, frame, site)
        inner = self._inlined[key]
        self._frames.append(inner)
        found = self.leaf(inner.computation.root, number, index)
        self._frames.pop()
        return found

    def _frame(
        self,
        computation: Computation,
        arguments: tuple[Expr, ...] | None = None,
        caller: _Frame | None = None,
        site: Instruction | None = None,
    ) -> _Frame:
        self._count += 1
        return _Frame(self._count, computation, arguments, caller, site)

    def _constant(self, instr: Instruction, index: Index) -> Expr:
        literal = instr.payload
        assert isinstance(literal, Literal)
        dtype = literal.shape.dtype
        if isinstance(literal, NamedLiteral):
            return self.bind(dtype, literal.name)
        assert literal.array is not None
        if literal.array.size == 1:
            return self.bind(dtype, scalar_literal(dtype, scalar_of(literal)))
        name, (unit, values) = self.fresh("c"), array_words(literal)
        self.line(f"static const {unit} {name}[] = {{{values}}};")
        place = self.offset(Shape(dtype, literal.shape.dims), index)
        return self.bind(dtype, f"hlo::constant<hlo::{dtype}>({name}, {place})")

    def needed_lines(self) -> list[str]:
        """Return the lines without the index locals that nothing uses."""
        return [*self.parts.heads.values(), *self.places.needed(self.lines)]

    def _declare(self, ctype: str, expression: str, letter: str) -> Expr:
        name = self.fresh(letter)
        self.line(f"{ctype} {name} = {expression};")
        return name


class _Operands:
    """The emitter as one instruction's rule sees it."""

    def __init__(self, emitter: ElementEmitter, frame: _Frame, instr: Instruction) -> None:
        self._emitter = emitter
        self._frame = frame
        self._instr = instr
        self.computations = emitter.computations
        self.call = emitter.call
        self.bind = emitter.bind
        self.variable = emitter.variable
        self.integer = emitter.integer
        self.split = emitter.split
        self.fresh = emitter.fresh
        self.line = emitter.line
        self.block = emitter.block

    def shape(self, operand: int) -> Shape:
        found = self._frame.computation[self._instr.operands[operand]].shape
        assert isinstance(found, Shape)
        return found

    def operand(self, operand: int, index: Index = (), leaf: int = 0) -> Expr:
        return self._emitter.leaf(self._instr.operands[operand], leaf, index)

    def leaves(self, operand: int) -> tuple[Expr, ...]:
        return self._emitter.leaves(self._instr.operands[operand], ())


def _is_pointwise(instr: Instruction) -> bool:
    return OPS[instr.opcode].elementwise and isinstance(instr.shape, Shape)


def _key(frame: _Frame, instr: Instruction, index: Index) -> _Key:
    """Return the key of a pointwise instruction's element: scalars have no index."""
    assert isinstance(instr.shape, Shape)
    return frame.id, instr.name, index if instr.shape.rank else (), 0
