"""A plan's kernels compiled, several in a unit, and loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from sys import is_finalizing
from typing import Any

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.compiler import Compiled, compile_units, unit_text
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.backends.cuda.source import KernelSource

STATIC_SHARED = 48 * 1024  # dynamic shared memory above this must be asked for
LEAST_LETTERS = 3500  # of a unit's C++, but for the last one's
MOST_ALIKE = 16  # units of the least length; those behind them grow

_SECTION = re.compile(rb"\.text\.(\w+)\0")
OWN: dict[str, Compiled] = {}  # what belongs to no HLO, by architecture: compiled once a process


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
        if source is not None and source.shared_bytes > STATIC_SHARED:
            which = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(cuda.cuFuncSetAttribute, function, which, source.shared_bytes, doing=doing)
        return function

    def __del__(self) -> None:
        if cuda is not None and not is_finalizing():
            for module in self._modules:
                cuda.cuModuleUnload(module)


def compile_kernels(
    sources: Iterable[KernelSource], arch: str, meanwhile: Callable[[], None] | None = None
) -> list[Compiled]:
    """Compile all kernels of a plan, and last those that belong to no HLO.

    The first are compiled while those behind them are still written. `meanwhile` is done when all
    are written, while they are compiled.
    """

    def units() -> Iterator[str]:
        yield from units_of(source.text for source in sources)
        if arch not in OWN:
            yield builtin.TEXT
        if meanwhile is not None:
            meanwhile()

    found = compile_units(units(), arch)
    if arch in OWN:
        return [*found, OWN[arch]]
    OWN[arch] = replace(found[-1], cached=True)
    return found


def names_in(cubin: bytes) -> list[bytes]:
    """Return the names of the functions in a cubin: each has a section."""
    return _SECTION.findall(cubin)


def units_of(texts: Iterable[str]) -> Iterator[str]:
    """Yield translation units of different kernels' texts, each as soon as its texts are there.

    Units are compiled side by side, but one after another is parsed, headers first: the more there
    is, the longer is each.
    """
    unit: list[str] = []
    known: set[str] = set()
    letters = written = 0
    for text in texts:
        if text in known:
            continue
        known.add(text)
        unit.append(text)
        letters, written = letters + len(text), written + len(text)
        if letters >= max(LEAST_LETTERS, written // MOST_ALIKE):
            yield unit_text(unit)
            unit, letters = [], 0
    if unit:
        yield unit_text(unit)
