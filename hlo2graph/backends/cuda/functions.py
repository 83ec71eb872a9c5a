"""A plan's kernels compiled, several in a unit, and loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isqrt
from typing import Any

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.compiler import Compiled, compile_units, unit_text
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.backends.cuda.source import KernelSource

STATIC_SHARED = 48 * 1024  # dynamic shared memory above this must be asked for
LETTERS = 4500  # of C++ that take the compiler as long as the headers of a unit

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

    def __getitem__(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Any:
        function, doing = self._held(name), f"for {name}"
        source = self._sources.get(name)
        if source is not None and source.shared_bytes > STATIC_SHARED:
            which = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(cuda.cuFuncSetAttribute, function, which, source.shared_bytes, doing=doing)
        return function

    def _held(self, name: str) -> Any:
        """Return the function of the one unit that has it."""
        *others, last = self._modules
        for module in others:
            status, function = cuda.cuModuleGetFunction(module, name.encode())
            if status == cuda.CUresult.CUDA_SUCCESS:
                return function
        return call(cuda.cuModuleGetFunction, last, name.encode(), doing=f"for {name}")

    def __del__(self) -> None:
        if cuda is not None:
            for module in self._modules:
                cuda.cuModuleUnload(module)


def compile_kernels(
    sources: Sequence[KernelSource], arch: str, meanwhile: Callable[[], None] | None = None
) -> list[Compiled]:
    """Compile all kernels of a plan, and last those that belong to no HLO.

    `meanwhile` is done while they are compiled.
    """

    def units() -> Iterator[str]:
        yield from parted([source.text for source in sources])
        if arch not in OWN:
            yield builtin.TEXT
        if meanwhile is not None:
            meanwhile()

    found = compile_units(units(), arch)
    if arch in OWN:
        return [*found, OWN[arch]]
    OWN[arch] = replace(found[-1], cached=True)
    return found


def parted(texts: Sequence[str]) -> list[str]:
    """Return units of about equal length, the longest first, for kernels' texts.

    Units are compiled side by side, but one after another is parsed, headers first: so many are
    taken that all headers take as long as the last unit's kernels.
    """
    count = min(len(texts), isqrt(sum(map(len, texts)) // LETTERS) + 1)
    units: list[list[str]] = [[] for _ in range(count)]
    for text in sorted(texts, key=len, reverse=True):
        min(units, key=_letters).append(text)
    return [unit_text(unit) for unit in sorted(units, key=_letters, reverse=True)]


def _letters(unit: Sequence[str]) -> int:
    return sum(map(len, unit))
