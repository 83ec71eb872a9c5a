"""convolution: any dimension labels, window, feature or batch groups.

Follows the OpenXLA section ConvWithGeneralPadding (convolution). The host rule adds one product per
window position, so it needs no patch matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np

from hlo2graph.hlo import AnyShape, DimLabels, Instruction, Shape, Window
from hlo2graph.ops import device_products as device
from hlo2graph.ops.dot import narrow, product_type, sums_wrap, widen
from hlo2graph.ops.expect import as_arrays, host_arrays, integer, refuse, require
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.window import check_window, unpadded, windowed_dims

Index: TypeAlias = tuple[Any, ...]


def _labels(instr: Instruction) -> DimLabels:
    held = instr.attrs.get("dim_labels")
    if not isinstance(held, DimLabels):
        refuse(instr, "needs the attribute dim_labels")
    return held


def _window(instr: Instruction) -> Window:
    held = instr.attrs.get("window", Window(()))
    assert isinstance(held, Window)
    return held


def _groups(instr: Instruction) -> tuple[int, int]:
    features, batches = (
        integer(instr, "feature_group_count", 1),
        integer(instr, "batch_group_count", 1),
    )
    for name, count in (("feature_group_count", features), ("batch_group_count", batches)):
        require(instr, count > 0, f"{name} must be positive, got {count}")
    require(
        instr,
        features == 1 or batches == 1,
        f"feature_group_count={features} and batch_group_count={batches} exclude each other",
    )
    return features, batches


def _check_labels(instr: Instruction, labels: DimLabels, shapes: Sequence[Shape]) -> int:
    """Check dim_labels against the operands' ranks; return the number of spatial dimensions."""
    spatial = len(labels.lhs) - 2
    digits = [str(i) for i in range(spatial)]
    for side, text, letters, rank in (
        ("lhs", labels.lhs, "bf", shapes[0].rank),
        ("rhs", labels.rhs, "io", shapes[1].rank),
        ("result", labels.out, "bf", spatial + 2),
    ):
        require(
            instr,
            sorted(text) == sorted([*letters, *digits]),
            f"dim_labels of {side} must have {letters} and {spatial} spatial digits, got {text}",
        )
        require(instr, len(text) == rank, f"dim_labels {text} do not fit {side} of rank {rank}")
    return spatial


def _spatial(text: str, dims: Sequence[int]) -> list[int]:
    return [dims[text.index(str(i))] for i in range(len(text) - 2)]


def _infer(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    lhs, rhs = as_arrays(instr, operands)
    labels, window = _labels(instr), _window(instr)
    spatial = _check_labels(instr, labels, (lhs, rhs))
    check_window(instr, window, spatial, "spatial dimensions")
    features, batches = _groups(instr)
    sizes = [d.size for d in window.dims]
    kernel = _spatial(labels.rhs, rhs.dims)
    require(instr, kernel == sizes, f"the kernel's spatial dimensions are {kernel}, not {sizes}")
    batch, channels = (lhs.dims[labels.lhs.index(c)] for c in "bf")
    inputs, outputs = (rhs.dims[labels.rhs.index(c)] for c in "io")
    require(
        instr,
        channels == inputs * features,
        f"lhs has {channels} features, the kernel takes {inputs} in {features} groups",
    )
    for what, count, groups in (
        ("output features", outputs, features),
        ("output features", outputs, batches),
        ("the batch", batch, batches),
    ):
        require(instr, count % groups == 0, f"{what} ({count}) must be a multiple of {groups}")
    found = {"b": batch // batches, "f": outputs}
    out = windowed_dims(_spatial(labels.lhs, lhs.dims), window)
    dims = tuple(found[c] if c in found else out[int(c)] for c in labels.out)
    return Shape(product_type(instr, lhs, rhs), dims)


def _axes(text: str, letters: str) -> list[int]:
    """Return where the two letters, then the spatial digits, stand in `text`."""
    return [text.index(c) for c in (*letters, *map(str, range(len(text) - 2)))]


def _laid_out(lhs: Array, window: Window) -> Array:
    """Dilate and pad the spatial (trailing) dimensions of `lhs`; negative padding crops."""
    lead = lhs.ndim - len(window.dims)
    full = [
        max(n - 1, 0) * w.lhs_dilate + min(n, 1)
        for n, w in zip(lhs.shape[lead:], window.dims, strict=True)
    ]
    dilated = np.zeros((*lhs.shape[:lead], *full), lhs.dtype)
    spread: Index = (..., *(slice(None, None, w.lhs_dilate) for w in window.dims))
    dilated[spread] = lhs
    padded = [n + w.pad_low + w.pad_high for n, w in zip(full, window.dims, strict=True)]
    result = np.zeros((*lhs.shape[:lead], *(max(n, 0) for n in padded)), lhs.dtype)
    into: list[slice] = []
    source: list[slice] = []
    for n, size, w in zip(full, padded, window.dims, strict=True):
        begin, end = max(0, -w.pad_low), min(n, size - w.pad_low)
        end = max(begin, end)
        source.append(slice(begin, end))
        into.append(slice(begin + w.pad_low, end + w.pad_low))
    here: Index = (..., *into)
    there: Index = (..., *source)
    result[here] = dilated[there]
    return result


def _run(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    lhs, rhs = host_arrays(operands)
    return convolve(instr, lhs, rhs)


def convolve(instr: Instruction, lhs: Array, rhs: Array) -> Array:
    """Return the convolution that the attributes of `instr` describe, in its element type."""
    assert isinstance(instr.shape, Shape)
    labels, window, dtype = _labels(instr), _window(instr), instr.shape.dtype
    features, batches = _groups(instr)
    lhs = lhs.transpose(_axes(labels.lhs, "bf"))
    rhs = rhs.transpose(_axes(labels.rhs, "oi"))
    wraps = sums_wrap(lhs, rhs)
    lhs, rhs = widen(lhs, rhs, dtype, prod(rhs.shape[1:]))
    batch, channels = lhs.shape[:2]
    outputs, inputs = rhs.shape[:2]
    groups = features * batches
    image = _laid_out(lhs, window)
    if features > 1:
        image = image.reshape(batch, features, channels // features, *image.shape[2:])
        image = image.swapaxes(0, 1)
    else:
        image = image.reshape(batches, batch // batches, channels, *image.shape[2:])
    kernel = rhs.reshape(groups, outputs // groups, inputs, *rhs.shape[2:])
    total = _sum_products(image, kernel, window)
    total = total.swapaxes(0, 1)  # [n, groups, outputs of a group, spatial]
    total = total.reshape(total.shape[0], outputs, *total.shape[3:])
    placed = total.transpose(np.argsort(_axes(labels.out, "bf")))
    return np.ascontiguousarray(narrow(placed, dtype, wraps))


def _sum_products(image: Array, kernel: Array, window: Window) -> Array:
    """Return [g, n, o, spatial] for image [g, n, c, spatial] and kernel [g, o, c, window]."""
    sizes = [d.size for d in window.dims]
    plain = Window(tuple(unpadded(d) for d in window.dims))
    out = windowed_dims(image.shape[3:], plain)
    groups, batch, channels = image.shape[:3]
    total = np.zeros((groups, batch, kernel.shape[1], prod(out)), image.dtype)
    for at in product(*(range(n) for n in sizes)):
        first = [i * w.rhs_dilate for i, w in zip(at, window.dims, strict=True)]
        taken: Index = (
            ...,
            *(
                slice(f, f + (n - 1) * w.stride + 1, w.stride) if n else slice(0, 0)
                for f, n, w in zip(first, out, window.dims, strict=True)
            ),
        )
        patch = image[taken]
        tap = [
            n - 1 - i if w.reversal else i for i, n, w in zip(at, sizes, window.dims, strict=True)
        ]
        weight_at: Index = (..., *tap)
        weight = kernel[weight_at][:, None]
        total += np.matmul(weight, patch.reshape(groups, batch, channels, prod(out)))
    return total.reshape(*total.shape[:3], *out)


CONVOLUTION = (
    OpSpec(
        "convolution",
        2,
        _infer,
        _run,
        frozenset(
            {
                "window",
                "dim_labels",
                "feature_group_count",
                "batch_group_count",
                "operand_precision",
                "convolution_kind",
                "padding_type",
                "sparsity_config",
            }
        ),
        required=frozenset({"dim_labels"}),
        device=device.convolution,
    ),
)
