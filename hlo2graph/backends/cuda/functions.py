"""A plan's kernels compiled, several in a unit, and loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from sys import is_finalizing
from typing import Any

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.compiler import Compiled, compile_units, unit_text
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.backends.cuda.nvrtc import FIRST
from hlo2graph.backends.cuda.prelude import takes_routine
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.errors import BackendError
from hlo2graph.ops.large_gpu import SHARED_BYTES

LEAST_LETTERS = 3500  # of a unit's C++, but for the last one's
MOST_ALIKE = 32  # units of the least length; those behind them grow

_SECTION = re.compile(rb"\.text\.(\w+)\0")
OWN: dict[str, Future[Compiled]] = {}  # what belongs to no HLO, by architecture: once a process
if hasattr(os, "register_at_fork"):
    # A child has the compiler's locks as they were, and none of the threads that would open them.
    os.register_at_fork(before=lambda: wait(tuple(OWN.values())))


class Functions:
    """Loaded kernels by C++ name; the modules are unloaded with the object."""

    def __init__(self, units: Sequence[Compiled], sources: Mapping[str, KernelSource]) -> None:
        """Load what compile_kernels made of `sources`."""
        self._modules: list[Any] = []
        self._sources = sources
        self._found: dict[str, Any] = {}
        for unit in units:
            self._modules.append(call(cuda.cuModuleLoadData, unit.cubin, doing="loading kernels"))
        self._unit = {name: at for at, unit in enumerate(units) for name in names_in(unit.cubin)}

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Any:
        module = self._modules[self._unit.get(name.encode(), -1)]
        doing = f"for {name}"
        function = call(cuda.cuModuleGetFunction, module, name.encode(), doing=doing)
        source = self._sources.get(name)
        if source is not None and source.shared_bytes > SHARED_BYTES:
            which = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(cuda.cuFuncSetAttribute, function, which, source.shared_bytes, doing=doing)
        return function

    def __del__(self) -> None:
        if cuda is not None and not is_finalizing():
            for module in self._modules:
                cuda.cuModuleUnload(module)


def begin_own(arch: str) -> Future[Compiled]:
    """Begin to compile what belongs to no HLO, and the compiler with it, while others are at work.

    It needs no plan, nor the code of ours that makes one.
    """
    begun = OWN.get(arch)
    if begun is None:
        pool = ThreadPoolExecutor(1)
        begun = OWN[arch] = pool.submit(lambda: compile_units((FIRST, builtin.TEXT), arch)[1])
        pool.shutdown(wait=False)
    return begun


def compile_kernels(
    sources: Iterable[KernelSource], arch: str, meanwhile: Callable[[], None] | None = None
) -> list[Compiled]:
    """Compile all kernels of a plan, and return last those that belong to no HLO.

    The first are compiled while those behind them are still written. `meanwhile` is done when all
    are written, while they are compiled.
    """
    begun = begin_own(arch)

    def units() -> Iterator[str]:
        yield from units_of(source.text for source in sources)
        if meanwhile is not None:
            meanwhile()

    return [*compile_units(units(), arch), _own(arch, begun)]


def _own(arch: str, begun: Future[Compiled]) -> Compiled:
    """Return what was begun; who asks next finds it cached, or begins anew where it failed."""
    try:
        found = begun.result()
    except BackendError:
        OWN.pop(arch, None)
        raise
    OWN[arch] = again = Future[Compiled]()
    again.set_result(replace(found, cached=True))
    return found


def names_in(cubin: bytes) -> list[bytes]:
    """Return the names of the functions in a cubin: each has a section."""
    return _SECTION.findall(cubin)


def units_of(texts: Iterable[str]) -> Iterator[str]:
    """Yield translation units of different kernels' texts, each as soon as its texts are there.

    Units are compiled side by side, but one after another is parsed, headers first: the more there
    is, the longer is each. What is long enough has one of its own; so has a routine, which takes
    longer than its text shows.
    """
    unit: list[str] = []
    known: set[str] = set()
    letters = written = 0
    for text in texts:
        if text in known:
            continue
        known.add(text)
        written += len(text)
        enough = max(LEAST_LETTERS, written // MOST_ALIKE)
        if len(text) >= enough or takes_routine(text):
            yield unit_text([text])
            continue
        unit.append(text)
        letters += len(text)
        if letters >= enough:
            yield unit_text(unit)
            unit, letters = [], 0
    if unit:
        yield unit_text(unit)
