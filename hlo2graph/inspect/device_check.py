"""Holding the graph on the device against itself and against the serial stream, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import DeviceMemory
from hlo2graph.inspect.compare import same_bits
from hlo2graph.inspect.self_check import Check
from hlo2graph.ops.spec import Array

LAUNCHES = 3
MOVES = 2


def poisoned_run(
    executable: CudaExecutable, mode: str, args: Sequence[object]
) -> tuple[Array, ...]:
    """Run once, with every byte that only thunks write spoiled before."""
    executable.write_inputs(args)
    executable.poison()
    executable.execute(mode)
    return executable.read_outputs()


def check_device(
    executable: CudaExecutable, args: Sequence[Array], others: Sequence[Array]
) -> tuple[tuple[Array, ...], tuple[Check, ...]]:
    """Return the graph's results, and whether every other run had the same bits.

    The graph runs three times with `args` and once with `others`; so does the serial stream once
    each. Then it is called twice with `args` in other device memory, elsewhere each time.
    """
    results = poisoned_run(executable, "graph", args)
    again = [
        same_bits(poisoned_run(executable, "graph", args), results) for _ in range(LAUNCHES - 1)
    ]
    serial = poisoned_run(executable, "serial", args)
    other = same_bits(
        poisoned_run(executable, "graph", others), poisoned_run(executable, "serial", others)
    )
    moved = [same_bits(_elsewhere(executable, args), results) for _ in range(MOVES)]
    how = f"calls with arrays that move ({executable.choices.pointers})"
    return results, (
        Check("the first launch", LAUNCHES, all(again), how=f"{LAUNCHES} launches"),
        Check("the serial stream", 1, same_bits(serial, results), how="the graph"),
        Check("the serial stream", 1, other, how="the graph with other inputs"),
        Check("the first launch", MOVES, all(moved), how=how),
    )


def _elsewhere(executable: CudaExecutable, args: Sequence[Array]) -> tuple[Array, ...]:
    """Call with arrays in device memory that nothing else has."""
    device, stream = executable.device, executable.stream
    arrays = []
    for bound, value in zip(executable.plan.inputs, args, strict=True):
        block = DeviceMemory(bound.slice.size, f"allocating another {bound.name}")
        arrays.append(DeviceArray(block.address, bound.shape, device, stream, block))
        arrays[-1].fill(value)
    return tuple(np.asarray(result) for result in executable(*arrays))
