"""A plan's thunks bound to a device: functions and their arguments, which name slices.

The serial stream and every graph are made of the same steps, so they run the same kernels on the
same bytes. Arguments are packed where a step meets addresses; enqueuing it is one driver call.
"""

from __future__ import annotations

from ctypes import addressof, c_size_t, c_ubyte, c_uint, c_uint64, c_ushort, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from hlo2graph.backends.cuda.addresses import Addresses, Operand
from hlo2graph.backends.cuda.blas import BlasPlan
from hlo2graph.backends.cuda.driver import Bound, bound, cuda
from hlo2graph.backends.cuda.launch_config import LaunchConfig, launch_call
from hlo2graph.backends.cuda.launch_order import LIGHT_BYTES, Weight
from hlo2graph.program.thunks import Slice


class PackedArguments:
    """Kernel arguments of 8 bytes each, and the array of pointers to them that a launch takes."""

    __slots__ = ("_slices", "pointers", "values")

    def __init__(self, arguments: tuple[Operand, ...], at: Addresses) -> None:
        self._slices = tuple(
            (k, a.allocation, a.offset) for k, a in enumerate(arguments) if isinstance(a, Slice)
        )
        words = c_uint64 * len(arguments)
        self.values = words(*(at.of(a) for a in arguments))
        start = addressof(self.values)
        self.pointers = words(*(start + sizeof(c_uint64) * k for k in range(len(arguments))))

    def move(self, at: Addresses) -> None:
        """Let the arguments point to where the slices lie now."""
        values, bases = self.values, at.bases
        for k, allocation, offset in self._slices:
            values[k] = bases[allocation] + offset

    @property
    def address(self) -> int:
        """Where the array of pointers lies."""
        return addressof(self.pointers)


@dataclass(frozen=True, slots=True)
class KernelStep:
    """A kernel launch. `place` is for errors: the HLO instruction, and where it stands."""

    name: str
    place: str
    function: Any
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: tuple[Operand, ...]
    is_light: bool = False  # as short as a kernel can be
    is_bare: bool = False  # it holds no shared memory
    is_long: bool = False  # it takes many steps

    @property
    def weight(self) -> Weight:
        """What it is to nodes that start with it."""
        if self.is_light:
            return Weight.LIGHT
        return Weight.LONG if self.is_long else Weight.KERNEL

    @property
    def slices(self) -> tuple[Slice, ...]:
        """What its arguments point to."""
        return tuple(a for a in self.arguments if isinstance(a, Slice))

    def launcher(self, stream: Any, at: Addresses) -> Bound:
        """Return the call that launches it on `stream`."""
        packed = PackedArguments(self.arguments, at)
        config = LaunchConfig(*self.grid, self.threads, 1, 1, self.shared_bytes, int(stream))
        return launch_call(config, self.function, packed.address, f"launching {self.place}", packed)

    def node_params(self, packed: PackedArguments) -> Any:
        """Return the parameters of a kernel node."""
        params = cuda.CUDA_KERNEL_NODE_PARAMS()
        params.func = self.function
        params.gridDimX, params.gridDimY, params.gridDimZ = self.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = self.threads, 1, 1
        params.sharedMemBytes = self.shared_bytes
        params.kernelParams = packed.address
        return params


@dataclass(frozen=True, slots=True)
class SetConditionStep:
    """The kernels that hand a predicate or selector on the device to conditional nodes.

    `function` sets a node of all branches; `function_is` a node that runs branch k alone.
    """

    name: str
    place: str
    function: Any
    function_is: Any
    selector: Slice
    branches: int  # of a switch, the last of which takes what is out of range

    def with_handle(self, handle: Any) -> KernelStep:
        """Return the kernel for one conditional handle."""
        return self._kernel(self.function, (int(handle), self.selector, self.branches))

    def for_branch(self, handle: Any, branch: int) -> KernelStep:
        """Return the kernel that sets one branch's own node."""
        return self._kernel(self.function_is, (int(handle), self.selector, self.branches, branch))

    def _kernel(self, function: Any, values: tuple[Operand, ...]) -> KernelStep:
        return KernelStep(self.name, self.place, function, (1, 1, 1), 1, 0, values)


@dataclass(frozen=True, slots=True)
class CopyStep:
    """A copy of device bytes."""

    name: str
    place: str
    source: Slice
    target: Slice

    @property
    def slices(self) -> tuple[Slice, ...]:
        """What it reads and writes."""
        return self.source, self.target

    @property
    def weight(self) -> Weight:
        """What it is to nodes that start with it."""
        return Weight.LIGHT if self.target.size <= LIGHT_BYTES else Weight.OTHER

    def launcher(self, stream: Any, at: Addresses) -> Bound:
        """Return the call that copies on `stream`."""
        return bound(
            "cuMemcpyDtoDAsync_v2",
            c_uint64(at.of(self.target)),
            c_uint64(at.of(self.source)),
            c_size_t(self.source.size),
            c_void_p(int(stream)),
            place=f"copying for {self.place}",
        )

    def node_params(self, at: Addresses) -> Any:
        """Return the parameters of a memcpy node: one row of bytes."""
        params = cuda.CUDA_MEMCPY3D()
        params.srcMemoryType = params.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        params.srcDevice, params.dstDevice = at.of(self.source), at.of(self.target)
        params.WidthInBytes, params.Height, params.Depth = self.source.size, 1, 1
        return params


@dataclass(frozen=True, slots=True)
class FillStep:
    """A fill of device bytes with an element of 1, 2 or 4 bytes."""

    name: str
    place: str
    target: Slice
    element: int
    element_size: int

    @property
    def slices(self) -> tuple[Slice, ...]:
        """What it writes."""
        return (self.target,)

    @property
    def weight(self) -> Weight:
        """What it is to nodes that start with it."""
        return Weight.LIGHT if self.target.size <= LIGHT_BYTES else Weight.OTHER

    def launcher(self, stream: Any, at: Addresses) -> Bound:
        """Return the call that fills on `stream`."""
        bits = 8 * self.element_size
        wrap = {8: c_ubyte, 16: c_ushort, 32: c_uint}[bits]
        return bound(
            f"cuMemsetD{bits}Async",
            c_uint64(at.of(self.target)),
            wrap(self.element),
            c_size_t(self.target.size // self.element_size),
            c_void_p(int(stream)),
            place=f"filling for {self.place}",
        )

    def node_params(self, at: Addresses) -> Any:
        """Return the parameters of a memset node: one row of elements."""
        params = cuda.CUDA_MEMSET_NODE_PARAMS()
        params.dst, params.value = at.of(self.target), self.element
        params.elementSize, params.width = self.element_size, self.target.size // self.element_size
        params.height, params.pitch = 1, 0
        return params


@dataclass(frozen=True, slots=True)
class LibraryStep:
    """A library's product of two matrices; `workspace` is scratch, where the plan has some."""

    name: str
    place: str
    product: BlasPlan
    lhs: Slice
    rhs: Slice
    out: Slice
    workspace: Slice | None
    weight: ClassVar[Weight] = Weight.OTHER

    @property
    def slices(self) -> tuple[Slice, ...]:
        """What it reads and writes."""
        found = (self.lhs, self.rhs, self.out)
        return found if self.workspace is None else (*found, self.workspace)

    def launcher(self, stream: Any, at: Addresses) -> Enqueued:
        """Return the call that enqueues it on `stream`."""
        scratch = self.workspace
        space = (0, 0) if scratch is None else (at.of(scratch), scratch.size)
        addresses = (at.of(self.lhs), at.of(self.rhs), at.of(self.out))
        return Enqueued(self.product, addresses, space, int(stream))


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A library's call on one stream, ready to be made."""

    product: BlasPlan
    addresses: tuple[int, int, int]
    workspace: tuple[int, int]
    stream: int

    def __call__(self) -> None:
        """Make it."""
        self.product.launch(*self.addresses, self.workspace, self.stream)


@dataclass(frozen=True, slots=True)
class LoopStep:
    """A loop: its condition's predicate is the one byte of `predicate`.

    `rounds` is how often the body runs, where that is known and the condition need not run at all.
    """

    name: str
    place: str
    condition: StepSequence
    body: StepSequence
    predicate: Slice
    setter: SetConditionStep
    rounds: int | None = None
    weight: ClassVar[Weight] = Weight.OTHER


@dataclass(frozen=True, slots=True)
class BranchStep:
    """A conditional: a pred selector (one byte) or an s32 one."""

    name: str
    place: str
    branches: tuple[StepSequence, ...]
    selector: Slice
    is_pred: bool
    setter: SetConditionStep
    weight: ClassVar[Weight] = Weight.OTHER


@dataclass(frozen=True, slots=True)
class GraphStep:
    """Steps that are one graph, where others are enqueued one by one; `number` tells it apart."""

    name: str
    number: int
    sequence: StepSequence
    weight: ClassVar[Weight] = Weight.OTHER


Straight: TypeAlias = KernelStep | CopyStep | FillStep | LibraryStep
Step: TypeAlias = Straight | LoopStep | BranchStep | GraphStep


@dataclass(frozen=True, slots=True)
class StepSequence:
    """Steps in program order; predecessors[k] are the positions that step k waits for."""

    steps: tuple[Step, ...]
    predecessors: tuple[tuple[int, ...], ...]

    @property
    def sinks(self) -> tuple[int, ...]:
        """The positions that nothing here waits for."""
        followed = {p for before in self.predecessors for p in before}
        return tuple(k for k in range(len(self.steps)) if k not in followed)

    def count(self) -> int:
        """Steps in all, nested ones included; a condition counts once."""
        return sum(_count(step) for step in self.steps)


def _count(step: Step) -> int:
    match step:
        case LoopStep():
            return 1 + step.condition.count() + step.body.count()
        case BranchStep():
            return 1 + sum(b.count() for b in step.branches)
        case GraphStep():
            return step.sequence.count()
        case _:
            return 1
