"""How sizes go through what folds elements: padding becomes what the fold starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hlo2graph.hlo import Computation, DType, Instruction, Window, WindowDim
from hlo2graph.ops.dot import dot_dims
from hlo2graph.ops.expect import integers
from hlo2graph.ops.folding import UFUNCS, identity_of
from hlo2graph.passes.sizes.body import Body
from hlo2graph.passes.sizes.value import UnfollowedError, Value, on_each_leaf

_LARGER = frozenset({"GE", "GT"})
_SMALLER = frozenset({"LE", "LT"})


def lowest(dtype: DType) -> np.ndarray:
    """Return what every other number is larger than."""
    return identity_of(UFUNCS["maximum"], dtype)


def highest(dtype: DType) -> np.ndarray:
    """Return what every other number is smaller than."""
    return identity_of(UFUNCS["minimum"], dtype)


def merged(values: Sequence[Value]) -> dict[int, str]:
    """Return the first size that any of several arrays has along each dimension."""
    sizes: dict[int, str] = {}
    for value in values:
        sizes = {**value.along, **sizes}
    return sizes


def reduce(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Fold start values in place of padding, as XLA does: they are to be neutral."""
    half = len(values) // 2
    arrays, inits = values[:half], values[half:]
    reduced, sizes = integers(instr, "dimensions"), merged(arrays)
    folded = {d: size for d, size in sizes.items() if d in reduced}
    names = [
        body.masked(v.name, v.array, folded, init.name)
        for v, init in zip(arrays, inits, strict=True)
    ]
    left = [d for d in range(arrays[0].array.rank) if d not in reduced]
    found = {left.index(d): size for d, size in sizes.items() if d not in reduced}
    operands = [*names, *(init.name for init in inits)]
    return body.keep(instr, operands, on_each_leaf(instr.shape, found))


def reduce_window(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Let windows see start values in place of padding."""
    half = len(values) // 2
    arrays, inits = values[:half], values[half:]
    sizes, window = merged(arrays), _window(instr)
    seen = {d: size for d, size in sizes.items() if window.dims[d] != WindowDim(1)}
    names = [
        body.masked(v.name, v.array, seen, init.name) for v, init in zip(arrays, inits, strict=True)
    ]
    found = {d: windowed(body, size, window.dims[d]) for d, size in sizes.items()}
    operands = [*names, *(init.name for init in inits)]
    return body.keep(instr, operands, on_each_leaf(instr.shape, found))


def windowed(body: Body, size: str, dim: WindowDim) -> str:
    """Return how many positions a window has along a dimension."""
    if dim == WindowDim(1):
        return size
    if dim.lhs_dilate != 1:
        gaps = body.count("maximum", body.count("subtract", size, 1), 0)
        size = body.count(
            "add",
            body.count("multiply", gaps, dim.lhs_dilate),
            body.count("minimum", size, 1),
        )
    span = (dim.size - 1) * dim.rhs_dilate + 1
    free = body.count("add", size, dim.pad_low + dim.pad_high - span + dim.stride)
    return body.count("divide", body.count("maximum", free, 0), dim.stride)


def select_and_scatter(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Hide padding from the selection, and scatter start values in place of it."""
    array, source, init = values
    fill = body.scalar(array.array, _never_selected(body, instr, array.array.dtype))
    name = body.masked(array.name, array.array, array.along, fill)
    updates = body.masked(source.name, source.array, source.along, init.name)
    return body.keep(instr, [name, updates, init.name], array.sizes)


def _never_selected(body: Body, instr: Instruction, dtype: DType) -> np.ndarray:
    """Return what a comparison does not select where it has a choice."""
    called: Computation = body.computations[str(instr.attrs["select"])]
    root = called.result
    direction = root.attrs.get("direction")
    straight = root.operands == tuple(p.name for p in called.parameters)
    if root.opcode == "compare" and straight and direction in _LARGER:
        return lowest(dtype)
    if root.opcode == "compare" and straight and direction in _SMALLER:
        return highest(dtype)
    raise UnfollowedError(instr.name)


def dot(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Contract zeros in place of padding, on both sides."""
    lhs, rhs = values
    dims = dot_dims(instr, lhs.array.rank, rhs.array.rank)
    pairs = list(zip(dims.lhs_contract, dims.rhs_contract, strict=True))
    left, right = lhs.along, rhs.along
    depths = {(a, b): left.get(a) or right.get(b) for a, b in pairs}
    operands = [
        _zeroed(body, value, {pair[side]: size for pair, size in depths.items() if size})
        for side, value in enumerate(values)
    ]
    batch = [
        left.get(a) or right.get(b) for a, b in zip(dims.lhs_batch, dims.rhs_batch, strict=True)
    ]
    free = [left.get(d) for d in dims.lhs_free] + [right.get(d) for d in dims.rhs_free]
    sizes = {(0, d): size for d, size in enumerate([*batch, *free]) if size}
    return body.keep(instr, operands, sizes)


def convolution(body: Body, instr: Instruction, values: Sequence[Value]) -> Value:
    """Convolve zeros in place of padding; a kernel's own window is never of unknown size."""
    from hlo2graph.hlo import DimLabels

    lhs, rhs = values
    labels, window = instr.attrs["dim_labels"], _window(instr)
    assert isinstance(labels, DimLabels)
    left = {labels.lhs[d]: size for d, size in lhs.along.items()}
    right = {labels.rhs[d]: size for d, size in rhs.along.items()}
    grouped = instr.attrs.get("feature_group_count", 1) != 1
    batched = instr.attrs.get("batch_group_count", 1) != 1
    if set(right) - {"i", "o"} or (grouped and ("f" in left or right)) or (batched and "b" in left):
        raise UnfollowedError(instr.name)
    depth = left.get("f") or right.get("i")
    shared = {"f": depth, "i": depth} if depth else {}
    spatial = {letter: size for letter, size in left.items() if letter.isdigit()}
    operands = [
        _zeroed(body, value, {text.index(c): n for c, n in seen.items() if c in text})
        for value, text, seen in ((lhs, labels.lhs, shared | spatial), (rhs, labels.rhs, shared))
    ]
    found = {c: windowed(body, size, window.dims[int(c)]) for c, size in spatial.items()}
    found |= {"b": left["b"]} if "b" in left else {}
    found |= {"f": right["o"]} if "o" in right else {}
    return body.keep(instr, operands, {(0, labels.out.index(c)): n for c, n in found.items()})


def _zeroed(body: Body, value: Value, sizes: Mapping[int, str]) -> str:
    zero = body.scalar(value.array, np.asarray(0))
    return body.masked(value.name, value.array, sizes, zero)


def _window(instr: Instruction) -> Window:
    held = instr.attrs.get("window", Window(()))
    assert isinstance(held, Window)
    return held
