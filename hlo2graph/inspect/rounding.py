"""How far the last bits of a program's arguments move its results.

A loop that ends when a residue is small, or a recurrence without damping, can make much of a
rounding. Where results that were added up in another order are far from the reference, but no
further than arguments that differ in their last bit would have taken them, nothing is wrong: no
reference could be nearer. Without rounds that build on each other nothing grows like that, and what
differs is wrong: a whole number that a last bit tips over would else excuse the one next to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hlo2graph.hlo import Module
from hlo2graph.inspect.compare import furthest, reach_of
from hlo2graph.inspect.reference import host_results
from hlo2graph.ops.spec import Array

TRIALS = 8
SEED = 0
ROUNDS = frozenset({"while", "scan"})


def has_rounds(module: Module) -> bool:
    """Tell whether some value is made of what was made of it before."""
    return any(
        instr.opcode in ROUNDS for c in module.computations.values() for instr in c.instructions
    )


def moved_by_rounding(module: Module, args: Sequence[Array]) -> Iterator[list[float]]:
    """Yield how far each result moves at most, trial by trial; infinite if it ends being finite."""
    if not any(_is_inexact(arg) for arg in args):
        return
    rng = np.random.default_rng(SEED)
    exact = host_results(module, args)
    found = [0.0] * len(exact)
    for _ in range(TRIALS):
        moved = host_results(module, [_nudged(arg, rng) for arg in args])
        found = [max(f, _furthest(*pair)) for f, *pair in zip(found, moved, exact, strict=True)]
        yield found


def reaches_across(moved: float, result: Array) -> bool:
    """Tell whether rounding moves a result as far as its values are from 0: any other may be."""
    return moved > 0 and moved >= reach_of(result)


def _is_inexact(array: Array) -> bool:
    return array.dtype in (np.float32, np.float64, np.complex64, np.complex128)


def _nudged(array: Array, rng: np.random.Generator) -> Array:
    """Return the array with each element one step up, down or where it was."""
    if not _is_inexact(array):
        return array
    parts = array.view(array.real.dtype) if array.dtype.kind == "c" else array
    ways = rng.choice(np.array((-np.inf, 0, np.inf), parts.dtype), parts.shape)
    nudged = np.where(ways == 0, parts, np.nextafter(parts, ways)).astype(parts.dtype)
    found: Array = np.where(np.isfinite(parts), nudged, parts).view(array.dtype)
    return found.reshape(array.shape)


def _furthest(got: Array, want: Array) -> float:
    one, other = (np.isfinite(array.astype(np.complex128)) for array in (got, want))
    return furthest(got, want) if np.array_equal(one, other) else np.inf
