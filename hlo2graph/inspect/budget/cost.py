"""What a thunk costs on a device: bytes over bandwidth, operations over rate.

Bytes are those that it reads and writes. Operations are two for each product of a dot or a
convolution, at the rate of matrix products, and one for each element that any other instruction
makes. A thunk fills a share of the device, by its largest array: 4 bytes for each thread that the
device holds at once fill it. Below that it runs slower than its bytes and operations would say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt, prod

from hlo2graph.hlo import Computation, DimLabels, Instruction, Shape
from hlo2graph.ops.expect import integers
from hlo2graph.program.device_figures import Device
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Collective, Kernel, Library, Slice, Thunk
from hlo2graph.program.uses import reads, writes

BYTES_A_THREAD = 4
FREE = frozenset(
    {
        *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota"),
        *("reshape", "copy", "transpose", "slice", "dynamic-slice", "dynamic-update-slice"),
        *("concatenate", "gather", "pad", "reverse"),
    }
)


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds that a thunk takes by itself, and the share of the device that it fills."""

    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Operations:
    """How many operations: those of products by the bytes of their operands' elements."""

    plain: int
    products: Mapping[int, int]


class Costs:
    """The costs of one plan's thunks on one device."""

    def __init__(self, plan: Plan, device: Device) -> None:
        self._computations, self._device = plan.computations, device
        self._operations: dict[str, Operations] = {}
        figures = device.figures
        self._full = figures.multiprocessors * figures.threads * BYTES_A_THREAD

    def of(self, thunk: Thunk[Slice]) -> Work:
        """Return the cost of a thunk that holds no others."""
        used = (*reads(thunk), *writes(thunk))
        largest = max((s.size for s in used), default=0)
        share = min(1.0, max(1, largest) / self._full)
        seconds = sum(s.size for s in used) / self._device.figures.bytes_per_second
        if isinstance(thunk, Kernel | Library | Collective):
            seconds = max(seconds, self._computing(thunk.computation))
        return Work(seconds / share, share)

    def _computing(self, name: str) -> float:
        found = self.operations(name)
        device = self._device
        seconds = found.plain / device.vector_flops
        for width, count in found.products.items():
            rate = device.tensor_flops * 4 / width if width <= 4 else device.vector_flops / 2
            seconds += count / rate
        return seconds

    def operations(self, name: str) -> Operations:
        """Return how many operations the computation of that name is."""
        if name not in self._operations:
            plain, products = 0, dict[int, int]()
            computation = self._computations[name]
            for instr in computation.instructions:
                if product := _product(instr, computation):
                    width = _shapes(instr, computation)[0].dtype.size
                    products[width] = products.get(width, 0) + product
                elif instr.opcode in ("fusion", "call"):
                    inner = self.operations(next(instr.called()))
                    plain += inner.plain
                    for width, count in inner.products.items():
                        products[width] = products.get(width, 0) + count
                elif instr.opcode not in FREE:
                    plain += max((s.elements for s in _shapes(instr, computation)), default=0)
            self._operations[name] = Operations(plain, products)
        return self._operations[name]


def first_product(computation: Computation) -> tuple[int, int] | None:
    """Return of the first product in `computation` the bytes of an element, and how many it sums.

    None where there is no product.
    """
    for instr in computation.instructions:
        if count := _product(instr, computation):
            size = _operands(instr, computation)[0].dtype.size
            return size, count // (2 * max(1, next(instr.shape.leaves()).elements))
    return None


def _product(instr: Instruction, computation: Computation) -> int:
    """Return the operations of a dot, a convolution or a library's product, else 0."""
    if instr.opcode not in ("dot", "convolution", "custom-call"):
        return 0
    operands, out = _operands(instr, computation), next(instr.shape.leaves(), None)
    if len(operands) < 2 or out is None:
        return 0
    lhs, rhs = operands[:2]
    if instr.opcode == "dot":
        steps = prod(lhs.dims[d] for d in integers(instr, "lhs_contracting_dims", ()))
        return 2 * out.elements * steps
    if instr.opcode == "convolution":
        labels = instr.attrs["dim_labels"]
        assert isinstance(labels, DimLabels), "the parser reads dim_labels"
        return 2 * out.elements * (rhs.elements // max(1, rhs.dims[labels.rhs.index("o")]))
    if not str(instr.attrs.get("custom_call_target", "")).startswith("__cublas"):
        return 0
    return 2 * out.elements * isqrt(lhs.elements * rhs.elements // max(1, out.elements))


def _operands(instr: Instruction, computation: Computation) -> list[Shape]:
    return [leaf for name in instr.operands for leaf in computation[name].shape.leaves()]


def _shapes(instr: Instruction, computation: Computation) -> list[Shape]:
    return [*_operands(instr, computation), *instr.shape.leaves()]
