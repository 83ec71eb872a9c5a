"""Write the C++ of one element of a computation's result.

The emitter walks from a result back to the parameters, asking each instruction's device rule for
its element at an index; what was computed once at an index in an enclosing scope is used again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from hlo2graph.backends.cuda.ctypes import compute_type, scalar_literal
from hlo2graph.hlo import Computation, DType, Instruction, Literal, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.device import Expr, Index, NoDevice, OwnKernel

_Key = tuple[int, str, Index]
_NAME = re.compile(r"\bi\d+\b")
_INDEX = re.compile(r" *const (?:int|long long) (i\d+) = ")


@dataclass(slots=True)
class _Scope:
    """A C++ block: what was computed in it is forgotten when it closes."""

    known: dict[_Key, tuple[Expr, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Frame:
    """One activation of a computation: how to get its parameters' elements."""

    id: int
    computation: Computation
    arguments: tuple[Sequence[Expr], ...] | None  # scalars' leaves; None at the kernel itself


class ElementEmitter:
    """Collects the lines of a kernel's body."""

    def __init__(self, computations: Mapping[str, Computation], index_type: str) -> None:
        self.computations = computations
        self.index_type = index_type
        self.lines: list[str] = []
        self._depth = 1
        self._scopes = [_Scope()]
        self._frames: list[_Frame] = []
        self._count = 0
        self._names = 0
        self._linear: dict[tuple[Index, tuple[int, ...], tuple[int, ...]], Expr] = {}

    # ---- what rules use (ops.device.Element) ----------------------------------------------

    def bind(self, dtype: DType, expression: str) -> Expr:
        """Declare a constant local of `dtype`'s compute type."""
        return self._declare(f"const {compute_type(dtype)}", expression, "v")

    def variable(self, dtype: DType, initial: str) -> Expr:
        """Declare a local that later lines may assign."""
        return self._declare(compute_type(dtype), initial, "m")

    def integer(self, expression: str) -> Expr:
        """Declare a constant local of the kernel's index type."""
        if expression.isdigit():
            return expression
        return self._declare(f"const {self.index_type}", expression, "i")

    def fresh(self, stem: str) -> Expr:
        """Return a name that nothing else in the kernel has."""
        self._names += 1
        return f"{stem}{self._names}"

    def line(self, text: str) -> None:
        """Write one statement."""
        self.lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head {`, what the context writes, and `}`."""
        self.line(f"{head} {{")
        self._depth += 1
        self._scopes.append(_Scope())
        yield
        self._scopes.pop()
        self._depth -= 1
        self.line("}")

    # ---- walking --------------------------------------------------------------------------

    def enter(self, computation: Computation, arguments: tuple[Sequence[Expr], ...] | None) -> None:
        """Make `computation` the one whose instructions `leaves` computes."""
        self._count += 1
        self._frames.append(_Frame(self._count, computation, arguments))

    def leave(self) -> None:
        """Return to the computation around the innermost one."""
        self._frames.pop()

    def call(self, computation: str, arguments: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the result leaves of a region of scalars, given its arguments."""
        called = self.computations[computation]
        self.enter(called, tuple((a,) for a in arguments))
        result = self.leaves(called.root, ())
        self.leave()
        return result

    def leaf(self, name: str, number: int, index: Index) -> Expr:
        """Return the element at `index` of one leaf; only that leaf's own producer is computed."""
        instr = self._frames[-1].computation[name]
        if instr.opcode == "tuple":
            for operand in instr.operands:
                width = sum(1 for _ in self._frames[-1].computation[operand].shape.leaves())
                if number < width:
                    return self.leaf(operand, number, index)
                number -= width
        return self.leaves(name, index)[number]

    def leaves(self, name: str, index: Index) -> tuple[Expr, ...]:
        """Return the element at `index` of each array leaf of an instruction."""
        frame = self._frames[-1]
        key = (frame.id, name, index)
        for scope in reversed(self._scopes):
            if key in scope.known:
                return scope.known[key]
        found = self._compute(frame, frame.computation[name], index)
        self._scopes[-1].known[key] = found
        return found

    def _compute(self, frame: _Frame, instr: Instruction, index: Index) -> tuple[Expr, ...]:
        match instr.opcode:
            case "parameter":
                return self._parameter(frame, instr, index)
            case "constant":
                return (self._constant(instr, index),)
            case "tuple":
                return tuple(e for o in instr.operands for e in self.leaves(o, index))
            case "get-tuple-element":
                return self._part(frame, instr, index)
        rule = OPS[instr.opcode].device
        assert not isinstance(rule, OwnKernel | NoDevice), f"{instr.opcode} inside a loop"
        found = rule(_Operands(self, instr), instr, index)
        return found if isinstance(found, tuple) else (found,)

    def _parameter(self, frame: _Frame, instr: Instruction, index: Index) -> tuple[Expr, ...]:
        assert isinstance(instr.payload, int)
        if frame.arguments is not None:
            return tuple(frame.arguments[instr.payload])
        assert isinstance(instr.shape, Shape)
        place = self.offset(instr.shape, index)
        return (self.bind(instr.shape.dtype, f"hlo::load(p{instr.payload}[{place}])"),)

    def _part(self, frame: _Frame, instr: Instruction, index: Index) -> tuple[Expr, ...]:
        whole = frame.computation[instr.operands[0]]
        number = instr.attrs["index"]
        parts = getattr(whole.shape, "parts", ())
        assert isinstance(number, int)
        widths = [sum(1 for _ in part.leaves()) for part in parts]
        start = sum(widths[:number])
        return self.leaves(whole.name, index)[start : start + widths[number]]

    def _constant(self, instr: Instruction, index: Index) -> Expr:
        literal = instr.payload
        assert isinstance(literal, Literal)
        assert literal.array is not None
        if literal.array.size == 1:
            value = literal.array.reshape(()).astype(literal.shape.dtype.numpy)
            return self.bind(literal.shape.dtype, scalar_literal(literal.shape.dtype, value))
        dtype, flat = literal.shape.dtype, np.ascontiguousarray(literal.array).reshape(-1)
        values = ", ".join(scalar_literal(dtype, v) for v in flat)
        name = self.fresh("c")
        self.line(f"static const {compute_type(dtype)} {name}[] = {{{values}}};")
        row_major = Shape(dtype, literal.shape.dims)
        return self.bind(dtype, f"{name}[{self.offset(row_major, index)}]")

    def offset(self, shape: Shape, index: Index) -> Expr:
        """Return where the element at `index` lies in memory, in elements."""
        known = self._linear.get((index, shape.dims, shape.minor_to_major))
        if known is not None:
            return known
        terms, stride = [], 1
        for dim in shape.minor_to_major:
            if shape.dims[dim] > 1 and index[dim] != "0":
                terms.append(index[dim] if stride == 1 else f"{index[dim]} * {stride}")
            stride *= shape.dims[dim]
        return " + ".join(reversed(terms)) or "0"

    def element_at(self, linear: Expr, shape: Shape) -> Index:
        """Return the index of element number `linear` in memory; arrays laid out alike use it."""
        order = tuple(reversed(shape.minor_to_major))
        stored = self.split(linear, [shape.dims[d] for d in order])
        place = dict(zip(order, stored, strict=True))
        index = tuple(place[d] for d in range(shape.rank))
        self._linear[index, shape.dims, shape.minor_to_major] = linear
        return index

    def needed_lines(self) -> list[str]:
        """Return the lines without the index locals that nothing uses."""
        used = {
            name
            for line in self.lines
            for name in _NAME.findall(line.partition(" = ")[2] if _INDEX.match(line) else line)
        }
        return [line for line in self.lines if not (m := _INDEX.match(line)) or m.group(1) in used]

    def split(self, linear: Expr, dims: Sequence[int]) -> Index:
        """Return the row-major index of element number `linear` of an array of `dims`."""
        index: list[Expr] = ["0"] * len(dims)
        stride, rest = 1, linear
        live = [d for d, n in enumerate(dims) if n != 1]
        for place, dim in enumerate(reversed(live)):
            over = linear if stride == 1 else f"{linear} / {stride}"
            last = place == len(live) - 1
            rest = over if last else f"{over} % {dims[dim]}"
            index[dim] = linear if rest == linear else self.integer(rest)
            stride *= dims[dim]
        return tuple(index)

    def _declare(self, ctype: str, expression: str, letter: str) -> Expr:
        name = self.fresh(letter)
        self.line(f"{ctype} {name} = {expression};")
        return name


class _Operands:
    """The emitter as one instruction's rule sees it."""

    def __init__(self, emitter: ElementEmitter, instr: Instruction) -> None:
        self._emitter = emitter
        self._frame = emitter._frames[-1]
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

    def operand(self, operand: int, index: Index = ()) -> Expr:
        (found,) = self._emitter.leaves(self._instr.operands[operand], index)
        return found
