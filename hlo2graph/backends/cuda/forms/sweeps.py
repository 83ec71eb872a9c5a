"""The form of rounds of a stencil: a block does all of them on its part of the arrays.

The part, with as much around it as the rounds reach, lies in shared memory twice: each round reads
one and writes the other, a margin less than the round before. A thread computes several elements
below each other, which read the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import KernelSource, Signature
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import DTYPES, Computation, DType, Instruction, Shape
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.device_shaping import padded
from hlo2graph.ops.expect import integers, written
from hlo2graph.ops.stencil import Stencil, stencil_of
from hlo2graph.ops.sweeps import MOST_THREADS, Part, Sweeps, part_of, past_ends

_MOVED = re.compile(r"(\w+) ([+-]) (\d+)")


def sweeps_kernel(
    region: Sweeps, computations: Mapping[str, Computation], signature: Signature
) -> KernelSource | None:
    """Return the kernel of all rounds; None where they are no stencil, or no block has room."""
    called = computations[region.called]
    stencil = stencil_of(called, region.states)
    part = part_of(stencil, signature.results, region.rounds) if stencil else None
    if stencil is None or part is None:
        return None
    emit = _Emitter(computations, signature.index_type, stencil, part, region.states)
    writer = _Writer(emit, called, stencil, part, signature)
    writer.write()
    text = signature.declare(emit.needed_lines(), writer.threads)
    return KernelSource(signature.name, text, (prod(part.counts), 1, 1), writer.threads)


class _Emitter(ElementEmitter):
    """Reads the states from shared memory, a known way off the place of the element there.

    What is chosen by where an element lies is chosen among values, all of which are computed:
    those of no place that exists are never chosen, and are read all the same.
    """

    def __init__(
        self,
        computations: Mapping[str, Computation],
        index_type: str,
        stencil: Stencil,
        part: Part,
        states: int,
    ) -> None:
        super().__init__(computations, index_type, {"concatenate": _concatenate, "pad": _pad})
        self._stencil, self._part, self._states = stencil, part, states
        self._held = Shape(DTYPES["f32"], part.room)  # as elements lie there, of whatever type
        self._own: Index = ()
        self._off: dict[Expr, int] = {}  # how far off the element's index integers are
        self._places: dict[tuple[int, ...], Expr] = {}  # by how far off they are
        self._states_read: dict[str, Expr] = {}

    def at(self, index: Index, own: Index) -> None:
        """Compute the element at `index`, which lies at `own` in the part, from now on."""
        self._own, self._off = own, dict.fromkeys(index, 0)
        self._places.clear()
        self._states_read.clear()

    def integer(self, expression: str) -> Expr:
        """Declare a constant local; remember how far off the element's index it is."""
        name = super().integer(expression)
        if (moved := _MOVED.fullmatch(expression)) and moved[1] in self._off:
            self._off[name] = self._off[moved[1]] + int(moved[2] + moved[3])
        return name

    def read(self, dtype: DType, place: str) -> Expr:
        """Declare a constant local for an element; for one of a state but once."""
        if not place.startswith("from"):
            return super().read(dtype, place)
        if place not in self._states_read:
            self._states_read[place] = super().read(dtype, place)
        return self._states_read[place]

    def place_of(self, number: int, shape: Shape, index: Index) -> Expr:
        """Return where an element of a state lies in shared memory, and any other in its array."""
        if number >= self._states:
            sizes = zip(index, shape.dims, strict=True)
            near = [self.integer(f"hlo::clamped_index({i}, {n - 1})") for i, n in sizes]
            return super().place_of(number, shape, tuple(near))
        off = tuple(self._shorter(dim, self._off.get(at, 0)) for dim, at in enumerate(index))
        if off not in self._places:
            self._places[off] = self.place([self._moved(dim, by) for dim, by in enumerate(off)])
        return f"from{number}[{self._places[off]}]"

    def place(self, own: Sequence[Expr]) -> Expr:
        """Return the number of an element of the part."""
        return self.offset(self._held, tuple(own))

    def _shorter(self, dim: int, off: int) -> int:
        size = self._stencil.dims[dim]
        if not self._stencil.around[dim]:
            return off
        return off - size * ((off > size // 2) - (off < -(size // 2)))

    def _moved(self, dim: int, by: int) -> Expr:
        if not by:
            return self._own[dim]
        at = self.integer(f"{self._own[dim]} {'-' if by < 0 else '+'} {abs(by)}")
        if not self._stencil.around[dim] or not self._part.is_whole(dim):
            return at
        size = self._stencil.dims[dim]
        return self.integer(f"{at} < 0 ? {at} + {size} : {at} >= {size} ? {at} - {size} : {at}")


def _concatenate(element: Element, instr: Instruction, index: Index) -> Expr:
    """Choose among the elements that each operand has, or would have, there."""
    [along], end = integers(instr, "dimensions"), 0
    found: list[tuple[Expr, int]] = []
    for number in range(len(instr.operands)):
        place = element.integer(f"{index[along]} - {end}") if end else index[along]
        end += element.shape(number).dims[along]
        value = element.operand(number, (*index[:along], place, *index[along + 1 :]))
        found.append((value, end))
    if len({value for value, _ in found}) == 1:
        return found[0][0]
    *tested, (last, _) = found
    chosen = "".join(f"{index[along]} < {end} ? {value} : " for value, end in tested)
    return element.bind(written(instr).dtype, chosen + last)


def _pad(element: Element, instr: Instruction, index: Index) -> Expr:
    """Choose between the padding value and the element that lies, or would lie, there."""
    tests, source = padded(element, instr, index)
    value = element.operand(0, source)
    if not tests:
        return value
    return element.bind(
        written(instr).dtype, f"{' && '.join(tests)} ? {value} : {element.operand(1)}"
    )


class _Writer:
    """Writes the kernel's lines."""

    def __init__(
        self,
        emit: _Emitter,
        called: Computation,
        stencil: Stencil,
        part: Part,
        signature: Signature,
    ) -> None:
        self.emit, self.called, self.stencil, self.part = emit, called, stencil, part
        self.states = signature.results
        self.across = [held for dim, held in enumerate(part.held) if dim != part.down]
        self.groups = part.room[part.down] // part.rows
        self.count = self.groups * prod(self.across)  # of what threads have one or several of
        each = -(-self.count // MOST_THREADS)
        self.threads = -(-self.count // (each * WARP)) * WARP

    def write(self) -> None:
        """Write all of them."""
        emit, part = self.emit, self.part
        size, margin = prod(part.room), past_ends(self.stencil, part)
        for number, shape in enumerate(self.states):
            kind = storage_type(shape.dtype)
            emit.line(f"__shared__ {kind} held{number}[2][{size + 2 * margin}];")
        self.begins = self._begins()
        self._fill(margin)
        emit.line("#pragma unroll 1")
        with emit.block(f"for (int done = 1; done <= {part.rounds}; ++done)"):
            for number, shape in enumerate(self.states):
                kind, held = storage_type(shape.dtype), f"held{number}"
                emit.line(f"const {kind}* const from{number} = {held}[(done + 1) % 2] + {margin};")
                emit.line(f"{kind}* const to{number} = {held}[done % 2] + {margin};")
            self._round()
            emit.line("__syncthreads();")

    def _begins(self) -> list[Expr]:
        """Return where the block's part begins, margins and all, in each dimension."""
        emit, part = self.emit, self.part
        numbers = emit.split(emit.integer(emit.block_index), part.counts)
        found = []
        for dim, (number, side) in enumerate(zip(numbers, part.sides, strict=True)):
            margin = 0 if part.is_whole(dim) else part.rounds * self.stencil.low[dim]
            found.append(emit.integer(f"{number} * {side} - {margin}"))
        return found

    @contextmanager
    def _patches(self) -> Iterator[Index]:
        """Write for each of a thread's patches what the context writes, given where it begins.

        They are the same in all rounds, so that where they are is found but once.
        """
        emit, down = self.emit, self.part.down
        emit.line("#pragma unroll")
        with emit.block(f"for (int n = 0; n < {-(-self.count // self.threads)}; ++n)"):
            emit.line(f"const int at = threadIdx.x + n * {self.threads};")
            group, *rest = emit.split("at", (self.groups, *self.across))
            first = emit.integer(f"{group} * {self.part.rows}")
            test = f"at < {self.count}" if self.count % self.threads else "true"
            with emit.block(f"if ({test})"):
                yield (*rest[:down], first, *rest[down:])

    def _below(self, own: Index) -> Iterator[tuple[Index, Index]]:
        """Yield where each element of a patch lies in the part, and in the arrays."""
        down = self.part.down
        for row in range(self.part.rows):
            at = self.emit.integer(f"{own[down]} + {row}") if row else own[down]
            here = (*own[:down], at, *own[down + 1 :])
            yield here, self._index(here)

    def _fill(self, margin: int) -> None:
        """Read the part: all that a thread reads of it is under way at once."""
        emit = self.emit
        with self._patches() as own:
            for here, index in self._below(own):
                with emit.block(f"if ({self._exists(index)})"):
                    for number, shape in enumerate(self.states):
                        place = f"p{number}[{emit.offset(shape, index)}]"
                        emit.line(f"held{number}[0][{emit.place(here)} + {margin}] = {place};")
        emit.line("__syncthreads();")

    def _index(self, own: Index) -> Index:
        """Return the index in the arrays of what lies at `own` in the part."""
        emit, found = self.emit, []
        for dim, (at, begin, size) in enumerate(
            zip(own, self.begins, self.stencil.dims, strict=True)
        ):
            place = at if self.part.is_whole(dim) else emit.integer(f"{begin} + {at}")
            if self.stencil.around[dim] and not self.part.is_whole(dim):
                behind = f"{place} >= {size} ? {size} : 0"
                place = emit.integer(f"{place} - ({place} < 0 ? {-size} : {behind})")
            found.append(place)
        return tuple(found)

    def _exists(self, index: Index) -> str:
        """Return the test whether an index is one."""
        tests = []
        for dim, (at, size) in enumerate(zip(index, self.stencil.dims, strict=True)):
            if not self.part.is_whole(dim) and not self.stencil.around[dim]:
                tests.append(f"{at} >= 0 && {at} < {size}")
            elif self.part.is_whole(dim) and self.part.room[dim] > size:
                tests.append(f"{at} < {size}")
        return " && ".join(tests) or "true"

    def _round(self) -> None:
        """Compute what this round, and those behind it, need of the part."""
        part, tests = self.part, []
        with self._patches() as own:
            for dim, at in enumerate(own[: part.down + 1]):
                if not part.is_whole(dim):
                    low, high = self._ends(dim)
                    more = f" - {part.rows - 1}" if dim == part.down and part.rows > 1 else ""
                    tests.append(f"{at} >= {low}{more} && {at} < {high}")
            with self.emit.block(f"if ({' && '.join(tests) or 'true'})"):
                self._elements(own)

    def _ends(self, dim: int) -> tuple[Expr, Expr]:
        """Return between which places of the part a round's elements lie."""
        held, stencil = self.part.held[dim], self.stencil
        if self.part.is_whole(dim):
            return "0", str(held)
        low = self.emit.integer(f"done * {stencil.low[dim]}")
        return low, self.emit.integer(f"{held} - done * {stencil.high[dim]}")

    def _elements(self, own: Index) -> None:
        """Compute a thread's elements, of which `own` is where the first lies, and store them.

        In the part, and behind the last round in the results.
        """
        emit, made = self.emit, []
        for here, index in self._below(own):
            emit.at(index, here)
            made.append((index, here, self._values(index)))
        with emit.block(f"if (done < {self.part.rounds})"):
            for _, here, values in made:
                for number, value in enumerate(values):
                    emit.line(f"to{number}[{emit.place(here)}] = {value};")
        with emit.block("else"):
            for index, here, values in made:
                with emit.block(f"if ({self._is_own(here)} && {self._exists(index)})"):
                    for number, (value, shape) in enumerate(zip(values, self.states, strict=True)):
                        emit.line(f"r{number}[{emit.offset(shape, index)}] = {value};")

    def _is_own(self, own: Index) -> str:
        """Return the test whether an element is the block's own, and not of the margins."""
        tests = []
        for dim, (at, side) in enumerate(zip(own, self.part.sides, strict=True)):
            low = self.part.rounds * self.stencil.low[dim]
            if not self.part.is_whole(dim):
                tests.append(f"{at} >= {low} && {at} < {low + side}")
                if self.stencil.around[dim] and self.part.dims[dim] % side:  # else others' too
                    tests.append(f"{self.begins[dim]} + {at} < {self.part.dims[dim]}")
        return " && ".join(tests) or "true"

    def _values(self, index: Index) -> list[Expr]:
        emit = self.emit
        emit.enter(self.called)
        found = [emit.leaf(self.called.root, n, index) for n in range(len(self.states))]
        emit.leave()
        return [emit.stored(s.dtype, v) for s, v in zip(self.states, found, strict=True)]
