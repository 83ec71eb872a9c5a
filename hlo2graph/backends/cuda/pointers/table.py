"""Table: our kernels read the addresses of ports from device memory, so that a move is one copy.

A kernel that touches a port gets a variant: instead of each pointer it takes the place of a cell
and an offset, and adds what the cell holds; without a cell the offset is the address itself. What
cannot read the table, copies and fills by the driver, library calls and the kernels that belong to
no HLO, is updated as by `update`.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from ctypes import addressof, c_size_t, c_uint64, c_void_p, sizeof
from dataclasses import dataclass

from hlo2graph.backends.cuda.addresses import Operand
from hlo2graph.backends.cuda.bind import Binder, Functions, compile_kernels, plain
from hlo2graph.backends.cuda.blas import BlasPlan
from hlo2graph.backends.cuda.built import GraphMaker
from hlo2graph.backends.cuda.compiler import Compiled
from hlo2graph.backends.cuda.driver import bound
from hlo2graph.backends.cuda.kernels import KernelKey, key_of
from hlo2graph.backends.cuda.memory import DeviceMemory, Stream
from hlo2graph.backends.cuda.pointers.strategy import Site, Tally
from hlo2graph.backends.cuda.ports import Placement, Port
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.wrap import Outer, Parameter, wrapped
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Computing, Sequence, Slice
from hlo2graph.program.uses import computing

CELL = 8  # bytes of an address
SUFFIX = "_at"
NO_CELL = 0


class Table:
    """Costs one small copy for a move, and for each kernel the time to read its addresses."""

    name = "table"

    def __init__(self, site: Site) -> None:
        count = len(site.ports)
        self._cells = DeviceMemory(count * CELL, "allocating the table of addresses")
        self._host = (c_uint64 * count)()
        self._graph = site.build_with_table(self._cells.address)
        self._held: Placement | None = None
        self.tally = Tally(notes=self._graph.refusals)

    @property
    def says(self) -> str:
        """What it did."""
        return str(self.tally)

    def launch(self, placement: Placement, stream: Stream) -> None:
        """Write the table where anything moved, behind the run before, and run."""
        tally, graph = self.tally, self._graph
        tally.launches += 1
        if placement != self._held:
            self._held = None
            tally.moved += 1
            tally.updates += graph.move(placement)
            self._host[:] = list(placement)
            self._write(stream)
            self._held = placement
        graph.launch_on(stream)

    def _write(self, stream: Stream) -> None:
        """Enqueue the copy of the table; the driver has read ours when this returns."""
        size = sizeof(self._host)
        if size:
            arguments = (c_uint64(self._cells.address), c_void_p(addressof(self._host)))
            bound(
                "cuMemcpyHtoDAsync_v2",
                *arguments,
                c_size_t(size),
                c_void_p(int(stream)),
                place="writing the table of addresses",
            )()


def maker_with_table(
    maker: GraphMaker,
    plan: Plan,
    body: Sequence[Slice],
    sources: Mapping[KernelKey, KernelSource],
    products: Mapping[str, BlasPlan],
    units: Several[Compiled] = (),
) -> GraphMaker:
    """Return what builds graphs of `body` that read a table, the allocation behind the plan's own.

    `body` is the plan's, loops written out or not. Compiles the kernels that it takes, unless
    `units` are what was made of `table_sources`.
    """
    used = table_sources(plan, maker.ports, sources)
    units = units or compile_kernels(used, maker.device.arch)
    functions = Functions(units, {source.name: source for source in used})
    binder = Binder(functions, sources, products, _packing(plan, maker.ports))
    return maker.bound_by(binder, body, functions)


def table_sources(
    plan: Plan, ports: Several[Port], sources: Mapping[KernelKey, KernelSource]
) -> tuple[KernelSource, ...]:
    """Return the kernels of `plan` where those that touch a port read a table."""
    packing = _packing(plan, ports)
    taken = [
        packing(thunk, sources[key_of(thunk)])[0]
        for thunk in computing(plan.body)
        if key_of(thunk) in sources
    ]
    return tuple({source.name: source for source in taken}.values())


def _packing(plan: Plan, ports: Several[Port]) -> _Packing:
    return _Packing({port.allocation: k for k, port in enumerate(ports)}, len(plan.allocations))


@dataclass(frozen=True, slots=True)
class _Packing:
    """Gives kernels the cells of ports; `table` is the allocation that holds them."""

    ports: Mapping[int, int]  # by allocation
    table: int

    def __call__(
        self, thunk: Computing[Slice], source: KernelSource
    ) -> tuple[KernelSource, tuple[Operand, ...]]:
        """Return what runs `thunk` and its arguments; the plain kernel if it touches no port."""
        _, slices = plain(thunk, source)
        if not any(isinstance(s, Slice) and s.allocation in self.ports for s in slices):
            return source, slices
        return reading(source), tuple(operand for s in slices for operand in self._cell(s))

    def _cell(self, part: Operand) -> tuple[Operand, Operand]:
        assert isinstance(part, Slice)
        port = self.ports.get(part.allocation)
        if port is None:
            return NO_CELL, part
        return Slice(self.table, port * CELL, CELL), part.offset


def reading(source: KernelSource) -> KernelSource:
    """Return the variant of a kernel that takes a cell and an offset for each pointer."""

    def outer(parameters: tuple[Parameter, ...]) -> Outer:
        word = "unsigned long long"
        taken = [f"const {word}* c{k}, {word} o{k}" for k in range(len(parameters))]
        given = [f"({p.type})(c{k} ? *c{k} + o{k} : o{k})" for k, p in enumerate(parameters)]
        return Outer(tuple(taken), (f"{{body}}({', '.join(given)});",))

    return wrapped(source, source.name + SUFFIX, outer)
