"""Holding the graph on the device against itself and against the serial stream, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.inspect.compare import same_bits
from hlo2graph.inspect.self_check import Check
from hlo2graph.ops.spec import Array

LAUNCHES = 3


def poisoned_run(
    executable: CudaExecutable, mode: str, args: Sequence[object]
) -> tuple[Array, ...]:
    """Run once, with every byte that only thunks write spoiled before."""
    executable.write_inputs(args)
    executable.poison()
    executable.execute(mode)
    return executable.read_outputs()


def check_device(
    executable: CudaExecutable, args: Sequence[object], others: Sequence[object]
) -> tuple[tuple[Array, ...], tuple[Check, ...]]:
    """Return the graph's results, and whether every other run had the same bits.

    The graph runs three times with `args` and once with `others`; so does the serial stream once
    each.
    """
    results = poisoned_run(executable, "graph", args)
    again = [
        same_bits(poisoned_run(executable, "graph", args), results) for _ in range(LAUNCHES - 1)
    ]
    serial = poisoned_run(executable, "serial", args)
    other = same_bits(
        poisoned_run(executable, "graph", others), poisoned_run(executable, "serial", others)
    )
    return results, (
        Check("the first launch", LAUNCHES, all(again), how=f"{LAUNCHES} launches"),
        Check("the serial stream", 1, same_bits(serial, results), how="the graph"),
        Check("the serial stream", 1, other, how="the graph with other inputs"),
    )
