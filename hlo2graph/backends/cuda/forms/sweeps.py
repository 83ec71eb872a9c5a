"""The form of rounds of a stencil: a block does all of them on its part of the arrays.

The part, with as much around it as the rounds reach, lies in shared memory twice: each round reads
one and writes the other, a margin less than the round before. A thread computes several elements
below each other, the same in all rounds, which read the same ones, and has them in registers too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type
from hlo2graph.backends.cuda.forms.sweep_reads import PartEmitter, kept
from hlo2graph.backends.cuda.source import KernelSource, Signature
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Computation
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.stencil import Stencil, stencil_of
from hlo2graph.ops.sweeps import MOST_THREADS, Part, Sweeps, part_of, past_ends


def sweeps_kernel(
    region: Sweeps, computations: Mapping[str, Computation], signature: Signature
) -> KernelSource | None:
    """Return the kernel of all rounds; None where they are no stencil, or no block has room."""
    called = computations[region.called]
    stencil = stencil_of(called, region.states)
    part = part_of(stencil, signature.results, region.rounds) if stencil else None
    if stencil is None or part is None:
        return None
    emit = PartEmitter(computations, signature.index_type, stencil, part, region.states)
    writer = _Writer(emit, called, stencil, part, signature)
    writer.write()
    text = signature.declare(emit.needed_lines(), writer.threads)
    return KernelSource(signature.name, text, (prod(part.counts), 1, 1), writer.threads)


class _Writer:
    """Writes the kernel's lines."""

    def __init__(
        self,
        emit: PartEmitter,
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
            if number in self.stencil.shared:
                emit.line(f"__shared__ {kind} held{number}[2][{size + 2 * margin}];")
            of_thread = f"[{-(-self.count // self.threads)}][{part.rows}]"
            emit.line(f"{compute_type(shape.dtype)} kept{number}{of_thread} = {{}};")
        self.begins = self._begins()
        self._fill(margin)
        emit.line("#pragma unroll 1")
        with emit.block(f"for (int done = 1; done <= {part.rounds}; ++done)"):
            for number in sorted(self.stencil.shared):
                kind, held = storage_type(self.states[number].dtype), f"held{number}"
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
            for row, (here, index) in enumerate(self._below(own)):
                with emit.block(f"if ({self._exists(index)})"):
                    for number, shape in enumerate(self.states):
                        value, kind = emit.fresh("b"), storage_type(shape.dtype)
                        place = f"p{number}[{emit.offset(shape, index)}]"
                        emit.line(f"const {kind} {value} = {place};")
                        if number in self.stencil.shared:
                            emit.line(f"held{number}[0][{emit.place(here)} + {margin}] = {value};")
                        emit.line(f"{kept(number, row)} = hlo::load({value});")
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
        for row, (here, index) in enumerate(self._below(own)):
            emit.at(index, here, row)
            made.append((index, here, self._values(index)))
        with emit.block(f"if (done < {self.part.rounds})"):
            for row, (_, here, values) in enumerate(made):
                for number, value in enumerate(values):
                    emit.line(f"{kept(number, row)} = hlo::load({value});")
                    if number in self.stencil.shared:
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
        values = []
        for shape, value in zip(self.states, found, strict=True):
            values.append(emit.fresh("w"))
            kind = storage_type(shape.dtype)
            emit.line(f"const {kind} {values[-1]} = {emit.stored(shape.dtype, value)};")
        return values
