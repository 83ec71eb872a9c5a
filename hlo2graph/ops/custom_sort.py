"""`__cub$DeviceRadixSort`: keys, and perhaps values with them, sorted along the last dimension.

Equal keys keep their order; zeros of both signs are equal, and NaNs go where their bits put them.
What follows the sorted arrays in the result is workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction
from hlo2graph.ops.custom_target import (
    Target,
    as_result,
    json_flag,
    on_device,
    result_leaves,
    same_leaf,
)
from hlo2graph.ops.device import NoDevice
from hlo2graph.ops.expect import as_arrays, host_arrays, require
from hlo2graph.ops.sorting import total_order
from hlo2graph.ops.spec import HostValue

RADIX_SORT = "__cub$DeviceRadixSort"


def is_descending(instr: Instruction) -> bool | None:
    """Tell whether the largest key comes first; None where the configuration does not say."""
    return json_flag(instr, "sort_backend_config", "descending")


def _why_not(instr: Instruction) -> str | None:
    if is_descending(instr) is None:
        return "its backend_config does not say whether it is descending"
    leaves = result_leaves(instr)
    if not 1 <= len(instr.operands) <= 2 or len(leaves) <= len(instr.operands):
        return "it takes keys, and perhaps values, and gives them and workspace"
    return None


def _check(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    shapes = as_arrays(instr, operands)
    for number, shape in enumerate(shapes):
        same_leaf(instr, number, shape)
        fits = shape.dims == shapes[0].dims and shape.rank > 0
        require(instr, fits, f"sorts arrays of the same sizes, got {shapes[0]} and {shape}")
    require(instr, not shapes[0].dtype.is_complex, f"sorts real numbers, got {shapes[0]}")


def _host(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    arrays, leaves = host_arrays(operands), result_leaves(instr)
    ranks = arrays[0]
    if leaves[0].dtype.is_float:
        ranks = total_order(ranks + np.zeros((), ranks.dtype))  # -0 + 0 is 0
    order = np.argsort(~ranks if is_descending(instr) else ranks, axis=-1, kind="stable")
    results = [np.take_along_axis(array, order, axis=-1) for array in arrays]
    results += [np.zeros(s.dims, s.dtype.numpy) for s in leaves[len(results) :]]
    return as_result(instr, results)


_INSIDE = NoDevice("becomes a sort, which cannot stand inside a kernel")
CUB = {RADIX_SORT: Target(_check, _host, on_device(_INSIDE), _why_not)}
