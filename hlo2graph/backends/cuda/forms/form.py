"""What every kernel form is given, and the instruction that decides for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import KernelSource, Signature
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.device import OwnKernel, device_of


@dataclass(frozen=True, slots=True)
class Form:
    """A computation to write a kernel for; `instr` is the instruction that makes its results.

    `inplace` holds the pairs (parameter, result) that share their bytes.
    """

    computation: Computation
    computations: Mapping[str, Computation]
    signature: Signature
    instr: Instruction
    inplace: tuple[tuple[int, int], ...] = ()

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

    def source(self, emitter: ElementEmitter, blocks: int, threads: int) -> KernelSource:
        """Return the kernel whose body `emitter` holds."""
        text = self.signature.declare(emitter.needed_lines(), threads)
        return KernelSource(self.signature.name, text, (blocks, 1, 1), threads)


def form_for(
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
    inplace: tuple[tuple[int, int], ...],
) -> tuple[str, Form] | None:
    """Return the name of the form that the computation's own kernel needs, and its input."""
    own = own_root(computation)
    if own is None:
        return None
    device = device_of(OPS[own.opcode].device, own)
    assert isinstance(device, OwnKernel)
    return device.form, Form(computation, computations, signature, own, inplace)


def own_root(computation: Computation) -> Instruction | None:
    """Return the instruction that needs its own kernel and gives all of the result, if one does.

    It is the root, or the root is the tuple of just its leaves, in order.
    """
    root = computation.result
    if root.opcode == "tuple" and root.operands:
        parts = [computation[name] for name in root.operands]
        whole = computation[parts[0].operands[0]] if parts[0].operands else root
        taken = [
            p.attrs.get("index")
            for p in parts
            if p.opcode == "get-tuple-element" and p.operands == (whole.name,)
        ]
        if taken != list(range(len(tuple(whole.shape.leaves())))) or len(taken) != len(parts):
            return None
        root = whole
    spec = OPS.get(root.opcode)
    return root if spec and isinstance(device_of(spec.device, root), OwnKernel) else None
