"""dot: products summed over contracting dimensions.

Follows the OpenXLA section DotGeneral. The result is [batch, lhs free, rhs free].
Floats narrower than float32 multiply and accumulate in float32; integers wrap in the result's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hlo2graph.hlo import AnyShape, DType, Instruction, Kind, Shape
from hlo2graph.ops import device_products as device
from hlo2graph.ops.conversion import converted
from hlo2graph.ops.expect import as_arrays, dimensions, host_arrays, require
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.widening import dtype_of

EXACT = 2**53  # every integer up to here is a float64


@dataclass(frozen=True, slots=True)
class DotDims:
    """The parts that dimensions play; `free` are those of neither batch nor contraction."""

    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    lhs_free: tuple[int, ...]
    rhs_free: tuple[int, ...]


def dot_dims(
    instr: Instruction, lhs_rank: int, rhs_rank: int, rhs_group: tuple[int, ...] = ()
) -> DotDims:
    """Return the dimensions' parts, as the attributes have them; `rhs_group` are never free."""
    lhs_batch = dimensions(instr, "lhs_batch_dims", lhs_rank)
    rhs_batch = dimensions(instr, "rhs_batch_dims", rhs_rank)
    lhs_contract = dimensions(instr, "lhs_contracting_dims", lhs_rank)
    rhs_contract = dimensions(instr, "rhs_contracting_dims", rhs_rank)
    for side, batch, contract in (
        ("lhs", lhs_batch, lhs_contract),
        ("rhs", rhs_batch, rhs_contract),
    ):
        both = set(batch) & set(contract)
        require(instr, not both, f"{side} dimension {min(both, default=0)} both batch and contract")
    lhs_free = tuple(d for d in range(lhs_rank) if d not in lhs_batch + lhs_contract)
    rhs_free = tuple(d for d in range(rhs_rank) if d not in rhs_batch + rhs_contract + rhs_group)
    return DotDims(lhs_batch, rhs_batch, lhs_contract, rhs_contract, lhs_free, rhs_free)


def check_pairs(instr: Instruction, lhs: Shape, rhs: Shape, dims: DotDims) -> None:
    """Require that batch and contracting dimensions pair up, equal in size."""
    for word, left, right in (
        ("batch", dims.lhs_batch, dims.rhs_batch),
        ("contracting", dims.lhs_contract, dims.rhs_contract),
    ):
        require(
            instr,
            len(left) == len(right),
            f"lhs has {len(left)} {word} dimensions, rhs {len(right)}",
        )
        for a, b in zip(left, right, strict=True):
            require(
                instr,
                lhs.dims[a] == rhs.dims[b],
                f"{word} dimensions differ in size: {lhs} has {lhs.dims[a]} at {a}, "
                f"{rhs} has {rhs.dims[b]} at {b}",
            )


def product_type(instr: Instruction, lhs: Shape, rhs: Shape) -> DType:
    """Return the element type of a sum of products: the written one, as XLA has it."""
    if isinstance(instr.shape, Shape):
        dtype = instr.shape.dtype
        numeric = dtype.kind not in (Kind.TOKEN, Kind.OPAQUE)
        require(instr, numeric, f"the result must be an array of numbers, got {dtype}")
        return dtype
    return max(lhs.dtype, rhs.dtype, key=lambda t: t.bits)


def _infer_dot(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    lhs, rhs = as_arrays(instr, operands[:2])
    dims = dot_dims(instr, lhs.rank, rhs.rank)
    check_pairs(instr, lhs, rhs, dims)
    sizes = (
        *(lhs.dims[d] for d in dims.lhs_batch),
        *(lhs.dims[d] for d in dims.lhs_free),
        *(rhs.dims[d] for d in dims.rhs_free),
    )
    return Shape(product_type(instr, lhs, rhs), sizes)


def widen(lhs: Array, rhs: Array, result: DType, depth: int) -> tuple[Array, Array]:
    """Return the operands in a type in which `depth` products sum right."""
    types = (dtype_of(lhs), dtype_of(rhs), result)
    wide = any(t.bits // (2 if t.is_complex else 1) == 64 for t in types if not t.is_integer)
    work: np.dtype[Any]
    if any(t.is_complex for t in types):
        work = np.dtype(np.complex128 if wide else np.complex64)
    elif any(t.is_float for t in types):
        work = np.dtype(np.float64 if wide else np.float32)
    elif all(t.kind is Kind.PRED for t in types):
        work = np.dtype(np.bool_)
    else:
        # Float64 has BLAS behind it, and is as good where no sum leaves its exact range.
        bound = max(depth, 1) * _largest(lhs) * _largest(rhs)
        work = np.dtype(np.float64 if bound < EXACT else np.int64)
    return lhs.astype(work, copy=False), rhs.astype(work, copy=False)


def _largest(array: Array) -> int:
    if not array.size:
        return 0
    return max(abs(int(array.max())), abs(int(array.min())))


def narrow(total: Array, result: DType, wraps: bool = True) -> Array:
    """Return `total` in the result's type; an integer too large wraps, or saturates."""
    if total.dtype.kind == "c" and not result.is_complex:
        total = total.real
    if result.is_integer and total.dtype.kind == "f":
        total = total.astype(np.int64) if wraps else converted(total, result)
    return total.astype(result.numpy, copy=False)


def sums_wrap(*factors: Array) -> bool:
    """Tell whether integers alone are multiplied; sums of floats saturate."""
    return not any(dtype_of(f).is_float or dtype_of(f).is_complex for f in factors)


def contract(lhs: Array, rhs: Array, dims: DotDims, result: DType) -> Array:
    """Return the products of `lhs` and `rhs` summed over the contracting dimensions."""
    depth = prod(lhs.shape[d] for d in dims.lhs_contract)
    wraps = sums_wrap(lhs, rhs)
    lhs, rhs = widen(lhs, rhs, result, depth)
    batch = tuple(lhs.shape[d] for d in dims.lhs_batch)
    rows = tuple(lhs.shape[d] for d in dims.lhs_free)
    columns = tuple(rhs.shape[d] for d in dims.rhs_free)
    left = lhs.transpose(*dims.lhs_batch, *dims.lhs_free, *dims.lhs_contract)
    right = rhs.transpose(*dims.rhs_batch, *dims.rhs_contract, *dims.rhs_free)
    total = np.matmul(
        left.reshape(prod(batch), prod(rows), depth),
        right.reshape(prod(batch), depth, prod(columns)),
    )
    return narrow(total, result, wraps).reshape((*batch, *rows, *columns))


def _dot(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    lhs, rhs = host_arrays(operands[:2])
    assert isinstance(instr.shape, Shape)
    return contract(lhs, rhs, dot_dims(instr, lhs.ndim, rhs.ndim), instr.shape.dtype)


def _dense_only(instr: Instruction) -> str | None:
    return "structured sparsity is not supported" if "sparsity" in instr.attrs else None


DOT_ATTRS = frozenset(
    {
        "lhs_batch_dims",
        "rhs_batch_dims",
        "lhs_contracting_dims",
        "rhs_contracting_dims",
        "operand_precision",
        "algorithm",
    }
)
DOT = OpSpec(
    "dot",
    (2, 4),
    _infer_dot,
    _dot,
    DOT_ATTRS | {"sparsity"},
    why_not=_dense_only,
    device=device.dot,
)
