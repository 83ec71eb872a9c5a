"""The kernels that read the addresses of ports from a table: made, compiled, bound to thunks.

A kernel that touches a port gets a variant: instead of each pointer it takes the place of a cell
and an offset, and adds what the cell holds; without a cell the offset is the address itself.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

from hlo2graph.backends.cuda.addresses import Operand
from hlo2graph.backends.cuda.bind import Binder, plain
from hlo2graph.backends.cuda.blas import BlasPlan
from hlo2graph.backends.cuda.built import GraphMaker
from hlo2graph.backends.cuda.compiler import Compiled
from hlo2graph.backends.cuda.functions import Functions, compile_kernels
from hlo2graph.backends.cuda.kernels import KernelKey, key_of
from hlo2graph.backends.cuda.ports import Port
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.wrap import Outer, Parameter, wrapped
from hlo2graph.errors import BackendError
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Computing, Sequence, Slice
from hlo2graph.program.uses import computing

CELL = 8  # bytes of an address
SUFFIX = "_at"
NO_CELL = 0


class TableKernels:
    """One plan's, for all its instances: compiled once, when needed or beside the calls."""

    def __init__(
        self,
        maker: GraphMaker,
        plan: Plan,
        body: Sequence[Slice],
        sources: Mapping[KernelKey, KernelSource],
        products: Mapping[str, BlasPlan],
        units: Several[Compiled] = (),
    ) -> None:
        """`body` is the plan's, loops written out or not; `units` are made of `table_sources`."""
        self._maker, self._plan, self._body = maker, plan, body
        self._sources, self._products = sources, products
        self._units = units
        self._seconds = 0.0
        self._failed = ""
        self._lock = threading.Lock()
        self._beside: threading.Thread | None = None

    @property
    def says(self) -> str:
        """What compiling them beside the calls took, or why there are none."""
        if self._failed:
            return f"no kernels that read a table: {self._failed}"
        if self._beside is None or not self.are_ready:
            return ""
        return f"kernels that read a table took {self._seconds * 1e3:.0f} ms beside the calls"

    @property
    def are_ready(self) -> bool:
        """They are compiled."""
        return bool(self._units)

    @property
    def is_compiling(self) -> bool:
        """They are being compiled beside the calls."""
        return self._beside is not None and self._beside.is_alive()

    @property
    def failed(self) -> bool:
        """They cannot be compiled here."""
        return bool(self._failed)

    def begin(self) -> None:
        """Begin to compile them, if nobody has."""
        with self._lock:
            if self._beside is None and not self._units:
                name = "hlo2graph: kernels that read a table"
                self._beside = threading.Thread(target=self._compile_beside, name=name)
                self._beside.start()

    @cached_property
    def maker(self) -> GraphMaker:
        """What builds graphs that read a table, the allocation behind the plan's own.

        Compiles the kernels, or waits for them, where they are not ready.

        Raises:
            BackendError: NVRTC or the driver refuses something.
        """
        if self._beside is not None:
            self._beside.join()
        if not self._units:
            self._units = self._compiled()
        functions = Functions(self._units, {source.name: source for source in self._used})
        packing = _packing(self._plan, self._maker.ports)
        binder = Binder(functions, self._sources, self._products, packing)
        return self._maker.bound_by(binder, self._body, functions)

    @cached_property
    def _used(self) -> tuple[KernelSource, ...]:
        return table_sources(self._plan, self._maker.ports, self._sources)

    def _compiled(self) -> Several[Compiled]:
        return compile_kernels(self._used, self._maker.device.arch)

    def _compile_beside(self) -> None:
        start = perf_counter()
        try:
            units = self._compiled()
        except (BackendError, RuntimeError) as error:  # the latter where the interpreter is ending
            self._failed = str(error)
            return
        self._seconds = perf_counter() - start
        self._units = units


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
