"""Plans whose kernels are chosen for a device of given figures, and all their kernels emulated."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import pytest

import hlo2graph
from hlo2graph.backends.cuda import kernels as kernels_module
from hlo2graph.program.device_figures import DeviceFigures
from hlo2graph.program.plan import Plan
from tests.emulation.emulator import Kernels

FLAT = DeviceFigures(multiprocessors=0, threads=0, bytes_per_second=0)  # any array fills it


def choose_for(figures: DeviceFigures, patch: pytest.MonkeyPatch) -> None:
    """Let kernels be chosen for a device of these figures, until the patch is undone."""
    patch.setattr(kernels_module, "figures_for", lambda _: figures)


@contextmanager
def planned(
    texts: Mapping[str, str],
    figures: DeviceFigures = FLAT,
    emulated: Collection[str] | None = None,
) -> Iterator[tuple[dict[str, Plan], Kernels]]:
    """Yield a plan for each text, and the kernels of those `emulated`, of all if not given."""
    with pytest.MonkeyPatch.context() as patch:
        choose_for(figures, patch)
        found = {name: hlo2graph.plan(text, target="sm_90") for name, text in texts.items()}
        yield found, Kernels([found[name] for name in (texts if emulated is None else emulated)])
