"""Programs by name, planned for sm_90 when one is run first, and all their kernels emulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import hlo2graph
from hlo2graph.backends.host import HostExecutable
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import Plan
from tests.emulation.agreement import both_ways
from tests.emulation.emulator import Kernels


class Cases:
    """Runs each by its kernels, in both orders of blocks, or as written on the host."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """The plans, by name."""
        return {name: hlo2graph.plan(text, target="sm_90") for name, text in self._texts.items()}

    @cached_property
    def _kernels(self) -> Kernels:
        return Kernels(list(self.plans.values()))

    def run(self, name: str, arguments: Sequence[Array]) -> tuple[Array, ...]:
        """Return what the kernels make of the arguments."""
        return both_ways(self.plans[name], self._kernels, arguments)

    def host(self, name: str, arguments: Sequence[Array]) -> tuple[Array, ...]:
        """Return what the host makes of them."""
        return HostExecutable(hlo2graph.plan(self._texts[name], target="host"))(*arguments)
