"""`__cusolver$cholesky`: the factor of each matrix in place, workspace, and LAPACK's info.

As in LAPACK, the other triangle keeps what was there, and a matrix that is not positive definite
keeps all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hlo2graph.hlo import AnyShape, Instruction
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.custom_lapack_routines import potrf
from hlo2graph.ops.custom_target import (
    Target,
    as_result,
    json_flag,
    on_device,
    result_leaves,
    same_leaf,
)
from hlo2graph.ops.device import NoDevice
from hlo2graph.ops.expect import as_array, host_arrays, require
from hlo2graph.ops.spec import HostValue

CHOLESKY = "__cusolver$cholesky"


def is_lower(instr: Instruction) -> bool | None:
    """Tell whether the lower triangle is read and written; None where nothing says so."""
    return json_flag(instr, "cholesky_backend_config", "lower")


def _why_not(instr: Instruction) -> str | None:
    if is_lower(instr) is None:
        return "its backend_config does not say which triangle is read"
    if len(instr.operands) != 1 or len(result_leaves(instr)) != 3:
        return "it takes matrices, and gives their factors, workspace and info"
    return None


def _check(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    shape, (_, _, info) = as_array(instr, operands[0]), result_leaves(instr)
    square = shape.rank >= 2 and shape.dims[-1] == shape.dims[-2]
    typed = (shape.dtype.is_float or shape.dtype.is_complex) and shape.dtype.bits >= 32
    require(instr, square and typed, f"factors square matrices of floats, got {shape}")
    same_leaf(instr, 0, shape)
    fits = info.dtype is S32 and info.elements == prod(shape.dims[:-2])
    require(instr, fits, f"gives s32 info for each matrix, got {info}")


def _host(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    (a,), (_, workspace, info) = host_arrays(operands), result_leaves(instr)
    options = {"uplo": "L" if is_lower(instr) else "U"}
    batch = a.shape[:-2]
    factors, found = np.empty_like(a), np.zeros(batch, np.int32)
    for at in np.ndindex(batch):
        factors[at], found[at] = potrf([a[at]], options)
    none = np.zeros(workspace.dims, workspace.dtype.numpy)
    return as_result(instr, [factors, none, found.reshape(info.dims)])


CUSOLVER = {
    CHOLESKY: Target(_check, _host, on_device(NoDevice("is in the middle of a kernel")), _why_not)
}
