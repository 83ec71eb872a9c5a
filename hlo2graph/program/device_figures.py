"""What a GPU of each target is taken to be, for the sizes of grids and what things cost.

The figures choose between ways to compute the same; results never depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """One GPU: what it holds at once and how fast its memory is."""

    multiprocessors: int
    threads: int  # resident on a multiprocessor
    shared_bytes: int  # that one block may have
    bytes_per_second: float  # from and to its memory, as specified


FIGURES: Mapping[str, DeviceFigures] = MappingProxyType(
    {
        "sm_80": DeviceFigures(108, 2048, 163 * 1024, 2.0e12),  # A100 of 80 GB
        "sm_90": DeviceFigures(132, 2048, 227 * 1024, 4.8e12),  # H200
    }
)


def figures_for(target: str) -> DeviceFigures:
    """Return the figures of a plan's target; kernels of a plan for the host are sm_80's."""
    return FIGURES.get(target, FIGURES["sm_80"])
