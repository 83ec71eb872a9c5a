"""A kernel as text, and how it is launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.hlo import Computation, Shape
from hlo2graph.program.device_figures import DeviceFigures

HEADER = "hlo2graph.cuh"
FOLLOW = "hlo::follow();"  # waits for the kernels that a graph puts in front (cooperate.cuh)
MOST_BLOCKS = 2**31 - 1
ACCESS_BYTES = 16  # of the widest access a thread makes


@dataclass(frozen=True, slots=True)
class Signature:
    """A kernel's C++ name and parameters: p0, p1, ... are read, r0, r1, ... written."""

    name: str
    parameters: tuple[Shape, ...]
    results: tuple[Shape, ...]
    most_elements: int  # of any array on the way from one to the other
    device: DeviceFigures
    misaligned: frozenset[str] = frozenset()  # of p0, ..., r0, ...: not on whole ACCESS_BYTES
    precise: bool = False  # products of f32 keep all bits of their operands
    still: frozenset[str] = frozenset()  # of p0, ...: what no node of the graph writes

    def declare(
        self,
        body: Sequence[str],
        threads: int,
        *,
        wide: bool = False,
        resident: int = 0,
        cluster: int = 1,
    ) -> str:
        """Return the whole definition around the lines of `body`.

        It begins by waiting for the kernels that a graph puts in front of it, unless `body` does
        that where it needs to: behind what it reads of `still` arrays.
        `wide` says that it has straight-line accesses of neighbouring elements: the compiler is
        told which arrays are aligned, so that it can make one access of several. `resident` says
        how many blocks a multiprocessor has at once, where that is known: the compiler may then
        give out all registers, where it would else leave room for blocks that never come.
        `cluster` says how many blocks, one behind the other, read each other's shared memory.
        """
        body = self.following([*(self._alignment() if wide else ()), *body])
        arguments = [f"const {storage_type(s.dtype)}* p{k}" for k, s in enumerate(self.parameters)]
        arguments += [f"{storage_type(s.dtype)}* r{k}" for k, s in enumerate(self.results)]
        bounds = f"{threads}, {resident}" if resident else f"{threads}"
        bounds = f"__launch_bounds__({bounds})"
        bounds += f" __cluster_dims__({cluster})" if cluster > 1 else ""
        head = f'extern "C" __global__ void {bounds}\n{self.name}('
        return head + ", ".join(arguments) + ") {\n" + "\n".join(body) + "\n}\n"

    def following(self, body: Sequence[str]) -> list[str]:
        """Return the lines of a body that waits for the kernels in front of it."""
        waits = any(line.endswith(FOLLOW) for line in body)
        return [*body] if waits else [f"  {FOLLOW}", *body]

    def _alignment(self) -> list[str]:
        arrays = [(f"p{k}", "const ", s) for k, s in enumerate(self.parameters)]
        arrays += [(f"r{k}", "", s) for k, s in enumerate(self.results)]
        return [
            f"  {name} = ({const}{storage_type(shape.dtype)}*)"
            f"__builtin_assume_aligned({name}, {ACCESS_BYTES});"
            for name, const, shape in arrays
            if name not in self.misaligned and shape.elements > 1
        ]

    @property
    def aligned(self) -> frozenset[str]:
        """What is read, of p0, ..., and lies on whole ACCESS_BYTES."""
        return frozenset(f"p{k}" for k in range(len(self.parameters))) - self.misaligned

    @property
    def index_type(self) -> str:
        """The C++ integer that counts the elements of every array here."""
        return "int" if self.most_elements < 2**31 - 2**20 else "long long"


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel's definition (without the header) and its launch."""

    name: str
    text: str
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int = 0  # dynamic shared memory
    tf32: bool = False  # it rounds operands of f32 products to TF32
    is_light: bool = False  # elementwise over few elements, as short as a kernel can be
    is_bare: bool = False  # it holds no shared memory, however many blocks it has
    is_long: bool = False  # it takes many steps, as a sort does

    @property
    def nameless(self) -> KernelSource:
        """What it has in common with kernels that differ in the name alone."""
        return replace(self, name="", text=self.text.replace(f"\n{self.name}(", "\n(", 1))


def signature_of(
    name: str,
    computation: Computation,
    device: DeviceFigures,
    misaligned: frozenset[str] = frozenset(),
    *,
    precise: bool = False,
    still: frozenset[str] = frozenset(),
) -> Signature:
    """Return the signature for a computation of array parameters."""
    parameters = []
    for parameter in computation.parameters:
        assert isinstance(parameter.shape, Shape)
        parameters.append(parameter.shape)
    leaves = (leaf for instr in computation.instructions for leaf in instr.shape.leaves())
    most = max((leaf.elements for leaf in leaves), default=0)
    results = tuple(computation.result.shape.leaves())
    return Signature(name, tuple(parameters), results, most, device, misaligned, precise, still)


def blocks_for(elements: int, threads: int) -> tuple[int, int, int]:
    """Return a grid of enough blocks for a thread an element."""
    return max(1, -(-elements // threads)), 1, 1


def cpp_name(name: str, taken: set[str]) -> str:
    """Return a C++ identifier that shows the HLO name, not yet in `taken`, and add it there.

    The prefix keeps it apart from C++'s own words and library functions (`and`, `exp`).
    """
    letters = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    stem = f"hlo_{letters}"
    found, count = stem, 1
    while found in taken:
        count += 1
        found = f"{stem}__{count}"
    taken.add(found)
    return found
