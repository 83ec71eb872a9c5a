"""What a GPU of each target is taken to be, for the sizes of grids and what things cost.

The figures choose between ways to compute the same; results never depend on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """One GPU: what it holds at once and how fast its memory is."""

    multiprocessors: int
    threads: int  # resident on a multiprocessor
    bytes_per_second: float  # from and to its memory, as specified
    shared: int = 163 << 10  # bytes that blocks share on a multiprocessor, at most
    cluster: int = 1  # blocks that may read each other's shared memory


FIGURES: Mapping[str, DeviceFigures] = MappingProxyType(
    {
        "sm_80": DeviceFigures(108, 2048, 2.0e12),  # A100 of 80 GB
        "sm_90": DeviceFigures(132, 2048, 4.8e12, 227 << 10, 8),  # H200
    }
)


def figures_for(target: str) -> DeviceFigures:
    """Return the figures of a plan's target; kernels of a plan for the host are sm_80's."""
    return FIGURES.get(target, FIGURES["sm_80"])


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU by name, for estimates of time: rates as its maker specifies them, without sparsity.

    vector_flops: float32 operations a second outside of matrix products.
    tensor_flops: of matrix products of float32 rounded to TF32; half the width doubles it.
    """

    target: str
    figures: DeviceFigures
    vector_flops: float
    tensor_flops: float


DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        "h200": Device("sm_90", FIGURES["sm_90"], 67e12, 494e12),
        "h100": Device("sm_90", replace(FIGURES["sm_90"], bytes_per_second=3.35e12), 67e12, 494e12),
        "a100": Device("sm_80", FIGURES["sm_80"], 19.5e12, 156e12),
    }
)


@dataclass(frozen=True, slots=True)
class Steps:
    """Seconds of one step that waits for the one before it, as tests/gpu/steps.py has them.

    fold, exchange: an addition, or the smaller of two, of what another lane of the warp has.
    barrier: an addition of what another thread of a block of 256 has.
    look: a comparison of what shared memory has where the last one told.
    column, row: of a factor, of a substitution, by a warp. butterfly: of an FFT, by a thread.
    """

    fold: float
    exchange: float
    barrier: float
    look: float
    column: float
    row: float
    butterfly: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The best that was measured on one GPU, by tests/gpu/minimal.py: what bounds are made of.

    bytes_per_second: of a large copy, read and written.
    vector_flops, product_flops: operations a second, of f32 without tensor cores, and of large
        products by the bytes of an element.
    launch: seconds that a graph takes beside its nodes.
    elementwise, fold, columns: seconds of the smallest kernels in a graph, from one to the next.
    products: the same of products, by the bytes of an element and the depth of their sums.
    steps: seconds that each step adds to the smallest kernel of what has steps by its nature.
    """

    bytes_per_second: float
    vector_flops: float
    product_flops: Mapping[int, float]
    launch: float
    elementwise: float
    fold: float
    columns: float
    products: Mapping[int, Mapping[int, float]]
    steps: Steps

    def of_product(self, size: int, depth: int) -> float:
        """Return the seconds of the smallest product of that depth, of elements of `size` bytes.

        Between two depths that were measured, as far from each as it lies; not beyond the last.
        """
        known = self.products[min(self.products, key=lambda other: abs(other - size))]
        below = max((n for n in known if n <= depth), default=min(known))
        above = min((n for n in known if n > depth), default=below)
        if above == below or depth < below:
            return known[below]
        return known[below] + (known[above] - known[below]) * (depth - below) / (above - below)


MEASURED: Mapping[str, Measured] = MappingProxyType(
    {
        "NVIDIA H200": Measured(
            bytes_per_second=4.11e12,
            vector_flops=51.7e12,
            product_flops={2: 890e12, 4: 448e12, 8: 62e12},
            launch=2.36e-6,
            elementwise=0.55e-6,
            fold=0.86e-6,
            columns=0.89e-6,
            products={
                2: {32: 0.97e-6, 128: 0.93e-6, 512: 1.43e-6, 2048: 2.58e-6, 4096: 3.72e-6},
                4: {32: 1.04e-6, 128: 1.13e-6, 512: 1.47e-6, 2048: 2.62e-6, 4096: 3.78e-6},
            },
            steps=Steps(
                fold=14.8e-9,
                exchange=15.9e-9,
                barrier=29.4e-9,
                look=19.2e-9,
                column=27.0e-9,
                row=19.2e-9,
                butterfly=7.1e-9,
            ),
        )
    }
)

# Seconds that a CUDA graph takes, as measured on an H200; other devices are taken to be the same.
NODE_SECONDS = 0.83e-6  # from a kernel to one that waits for it
ISSUE_SECONDS = 0.18e-6  # from one kernel to the next where none waits
ROUND_SECONDS = 4.4e-6  # a loop's round, beside what is in it
BRANCH_SECONDS = 8.6e-6  # a conditional, beside what is in it
