"""How a region folds values into accumulators: shared by reduce, windows and scatter.

A region takes n accumulators, then n values, and returns n accumulators. Regions that XLA calls
simple (one commutative instruction) run as NumPy ufuncs, elementwise ones on whole arrays, all
others one element at a time, as a scalar program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from hlo2graph.hlo import DType, Kind, Shape
from hlo2graph.ops.scalar_region import binary_reducer, is_elementwise_region
from hlo2graph.ops.spec import Array, Evaluator, HostValue
from hlo2graph.ops.widening import compute_dtype, dtype_of, widen

UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
SEQUENTIAL = 4096  # steps folded one by one; more are first combined in pairs, in order
WINDOW = 32  # elements that XLA folds at once along a dimension; of more, it folds windows first

Fold: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], tuple[Array, ...]]


def simple_ufunc(evaluate: Evaluator, name: str) -> np.ufunc | None:
    """Return the ufunc that the region is, if it is one."""
    opcode = binary_reducer(evaluate.computations, name)
    if opcode in ("maximum", "minimum"):
        shape = evaluate.computations[name].result.shape
        if isinstance(shape, Shape) and shape.dtype.is_complex:
            return None  # NumPy orders complex numbers in another way
    return UFUNCS.get(opcode) if opcode else None


def identity_of(ufunc: np.ufunc, dtype: DType) -> Array:
    """Return the neutral element of one of UFUNCS, in the type that `dtype` accumulates in."""
    work = compute_dtype(dtype)
    if ufunc not in (np.maximum, np.minimum):
        return np.asarray(ufunc.identity).astype(work)  # that of `and` is -1
    low = ufunc is np.maximum
    match dtype.kind:
        case Kind.PRED:
            return np.asarray(not low)
        case Kind.SIGNED:
            return np.asarray(-(1 << dtype.bits - 1) if low else (1 << dtype.bits - 1) - 1, work)
        case Kind.UNSIGNED:
            return np.asarray(0 if low else (1 << dtype.bits) - 1, work)
        case _:
            return np.asarray(-np.inf if low else np.inf, work)


def neutral_of(opcode: str, dtype: DType) -> Array:
    """Return the element that changes no other: of float sums -0, for 0 + -0 is 0."""
    if opcode == "add" and dtype.is_float:
        return np.asarray(-0.0, dtype.numpy)
    if opcode == "and":
        return np.asarray(-1).astype(dtype.numpy)
    return np.asarray(identity_of(UFUNCS[opcode], dtype), dtype.numpy)


def as_tuple(value: HostValue) -> tuple[Array, ...]:
    """Return a region's results as a tuple, whether it returns an array or a tuple."""
    parts = value if isinstance(value, tuple) else (value,)
    return tuple(np.asarray(part) for part in parts)


def region_fold(evaluate: Evaluator, name: str) -> Fold:
    """Return the region as a function over arrays of one shape, element by element."""

    def whole(accumulators: Sequence[Array], values: Sequence[Array]) -> tuple[Array, ...]:
        shape = np.broadcast_shapes(*(a.shape for a in (*accumulators, *values)))
        results = as_tuple(evaluate(name, [*accumulators, *values]))
        return tuple(np.broadcast_to(r, shape) for r in results)

    def each(accumulators: Sequence[Array], values: Sequence[Array]) -> tuple[Array, ...]:
        given = np.broadcast_arrays(*accumulators, *values)
        rows = [
            as_tuple(evaluate(name, [np.asarray(a[at]) for a in given]))
            for at in np.ndindex(given[0].shape)
        ]
        return tuple(
            np.array([row[k] for row in rows], dtype=a.dtype).reshape(a.shape)
            for k, a in enumerate(given[: len(accumulators)])
        )

    return whole if is_elementwise_region(evaluate.computations, name) else each


def fold_leading(
    fold: Fold, accumulators: Sequence[Array], values: Sequence[Array]
) -> tuple[Array, ...]:
    """Fold `values` along their leading dimension into the accumulators, in order.

    HLO leaves the order to the implementation, so a long dimension is first halved in pairs.
    """
    while values[0].shape[0] > SEQUENTIAL:
        paired = values[0].shape[0] // 2 * 2
        halved = fold([v[0:paired:2] for v in values], [v[1:paired:2] for v in values])
        values = [np.concatenate([h, v[paired:]]) for h, v in zip(halved, values, strict=True)]
    held = tuple(accumulators)
    for step in range(values[0].shape[0]):
        held = fold(held, [v[step] for v in values])
    return held


def windows_of(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes of the windows that dimensions are first folded by; none where none are."""
    return tuple(min(n, WINDOW) for n in sizes) if max(sizes, default=0) > WINDOW else ()


def fold_windows(fold: Fold, init: Array, values: Array, count: int) -> Array:
    """Fold `values` along their first `count` dimensions from `init`, as XLA does on the CPU.

    That is, by windows, each of which begins from `init`, and then what they gave in the same way.
    It shows where a region does something else to a value than to an accumulator.
    """
    while values.size and (windows := windows_of(values.shape[:count])):
        values = _folded_windows(fold, init, values, windows)
    kept = values.shape[count:]
    (result,) = fold_leading(fold, [np.broadcast_to(init, kept)], [values.reshape(-1, *kept)])
    return result


def _folded_windows(fold: Fold, init: Array, values: Array, windows: Sequence[int]) -> Array:
    """Fold each window into one value; the first and the last may jut out at the edges."""
    sizes, kept = values.shape[: len(windows)], values.shape[len(windows) :]
    counts = [-(-n // w) for n, w in zip(sizes, windows, strict=True)]
    beyond = [c * w - n for n, c, w in zip(sizes, counts, windows, strict=True)]
    edges = [(n // 2, n - n // 2) for n in beyond]
    padded = np.pad(values, [*edges, *((0, 0) for _ in kept)])
    inside = np.pad(np.ones((*sizes, *(1 for _ in kept)), bool), [*edges, *((0, 0) for _ in kept)])
    held = np.broadcast_to(init, (*counts, *kept))
    for step in np.ndindex(*windows):
        at = tuple(slice(s, None, w) for s, w in zip(step, windows, strict=True))
        (found,) = fold([held], [padded[at]])
        held = np.where(inside[at], found, held)
    return held


def scatter_fold(
    evaluate: Evaluator,
    name: str,
    targets: Sequence[Array],
    index: Array,
    values: Sequence[Array],
) -> None:
    """Fold values[k][i] into the flat targets[k] at index[i], in order of i; changes targets."""
    root = evaluate.computations[name].result
    if len(targets) == 1 and root.opcode == "parameter" and root.payload == 1:
        targets[0][index] = values[0]  # NumPy keeps the last of equal indices
        return
    ufunc = simple_ufunc(evaluate, name)
    if len(targets) == 1 and ufunc is not None:
        if not dtype_of(targets[0]).is_integer:
            ufunc.at(targets[0], index, values[0])  # floats are rounded after every update
            return
        total = widen(targets[0])
        ufunc.at(total, index, widen(values[0]))
        targets[0][:] = total.astype(targets[0].dtype, copy=False)
        return
    fold = region_fold(evaluate, name)
    for chosen in _rounds(index):
        where = index[chosen]
        results = fold([t[where] for t in targets], [v[chosen] for v in values])
        for target, result in zip(targets, results, strict=True):
            target[where] = result


def _rounds(index: Array) -> list[Array]:
    """Split the positions of `index` so that no round holds an index twice and order is kept."""
    if not index.size:
        return []
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.append(starts, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(starts, lengths)
    by_rank = np.argsort(rank, kind="stable")
    cuts = np.cumsum(np.bincount(rank))[:-1]
    return np.split(order[by_rank], cuts)
