"""What the kernel form of one instruction is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import KernelSource, Signature
from hlo2graph.hlo import Computation, Instruction, Shape


@dataclass(frozen=True, slots=True)
class Form:
    """A computation to write a kernel for; `instr` is the instruction that makes its results.

    `inplace` holds the pairs (parameter, result) that share their bytes; `others` the dots that
    make them with `instr`; `updates` the results that are updates of arrays by what these make.
    """

    computation: Computation
    computations: Mapping[str, Computation]
    signature: Signature
    instr: Instruction
    inplace: tuple[tuple[int, int], ...] = ()
    others: tuple[Instruction, ...] = ()
    updates: tuple[int, ...] = ()

    @property
    def each(self) -> tuple[Form, ...]:
        """The form of `instr` alone, and that of each of the others."""
        return tuple(replace(self, instr=i, others=()) for i in (self.instr, *self.others))

    def emitter(self) -> ElementEmitter:
        """Return an emitter that walks the computation."""
        found = ElementEmitter(self.computations, self.signature.index_type)
        found.enter(self.computation)
        return found

    def shape(self, operand: int) -> Shape:
        """Return the shape of one of the instruction's operands."""
        found = self.computation[self.instr.operands[operand]].shape
        assert isinstance(found, Shape)
        return found

    @property
    def results(self) -> tuple[Shape, ...]:
        """The shapes of the result leaves."""
        return self.signature.results

    def source(
        self,
        emitter: ElementEmitter,
        blocks: int,
        threads: int,
        *,
        wide: bool = False,
        resident: int = 0,
    ) -> KernelSource:
        """Return the kernel whose body `emitter` holds; the rest is as Signature.declare has it."""
        lines = emitter.needed_lines()
        text = self.signature.declare(lines, threads, wide=wide, resident=resident)
        return KernelSource(self.signature.name, text, (blocks, 1, 1), threads)
