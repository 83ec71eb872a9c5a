"""`__cublas$lt$matmul$f8`: a matrix product of float8 numbers that stand for multiples of a scale.

Operands are A, B, then C where beta is not 0, the scales of A and B, and, in any order that their
ranks tell apart, the bias where the epilogue adds one and the scales of C and D. The result is
activation(scale_A scale_B alpha A B + scale_C beta C + bias); as float8 it is multiplied by
scale_D and saturates. A scalar behind it is the largest size of what it was before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, DType, Instruction, Shape
from hlo2graph.ops.custom_cublas import (
    Gemm,
    activated,
    bias_dims,
    converted,
    gemm_of,
    plus,
    scaled,
    spread,
    zero,
)
from hlo2graph.ops.custom_target import (
    DeviceChoice,
    Target,
    as_result,
    first_leaves,
    result_leaves,
    same_leaf,
)
from hlo2graph.ops.device import ByLeaf, Element, Expr, Index, NoDevice
from hlo2graph.ops.device_products import dot as device_dot
from hlo2graph.ops.dot import DOT, contract, dot_dims
from hlo2graph.ops.expect import as_arrays, host_arrays, require
from hlo2graph.ops.spec import Array, HostValue

_F32 = DTYPES["f32"]
_LEAST, _MOST = 2, 4  # scales


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where the operands of a call are: scales of A, B, C and D; None where one is not given."""

    scales: tuple[int, int]
    of_c: int | None
    of_d: int | None
    bias: int | None


def _gemm(instr: Instruction) -> Gemm | str:
    """Return the product that the configuration asks for, scales apart."""
    found = gemm_of(instr, spare=(_LEAST, _MOST))
    if isinstance(found, str):
        return found
    if found.has_aux or found.alpha.imag:
        return "it takes a real alpha and no auxiliary result"
    leaf = result_leaves(instr)[0]
    return found if leaf.dtype.is_float else f"it gives floating-point numbers, not {leaf}"


def _known(instr: Instruction) -> Gemm:
    gemm = _gemm(instr)
    assert isinstance(gemm, Gemm)
    return gemm


def _parts(gemm: Gemm, ranks: Sequence[int]) -> _Parts | None:
    """Tell the operands behind A, B and C apart by their ranks; None if they are not such."""
    first = 2 + (gemm.beta != 0)
    scalars = [k for k in range(first, len(ranks)) if ranks[k] == 0]
    others = [k for k in range(first, len(ranks)) if ranks[k] > 0]
    if len(others) != gemm.has_bias or not _LEAST <= len(scalars) <= _MOST:
        return None
    a, b, *rest = scalars
    of_c = rest[0] if len(rest) == 2 else None
    of_d = rest[-1] if rest else None
    return _Parts((a, b), of_c, of_d, others[0] if others else None)


def _has_largest(instr: Instruction) -> bool:
    """Tell whether a scalar follows the product: the largest size in it."""
    leaves = result_leaves(instr)
    return len(leaves) > 1 and not leaves[1].dims and leaves[1].dtype is _F32


def _check(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    gemm, shapes, out = _known(instr), as_arrays(instr, operands), result_leaves(instr)[0]
    parts = _parts(gemm, [shape.rank for shape in shapes])
    if parts is None:
        require(instr, False, "takes two to four scales and the bias of its epilogue")
        return
    found = DOT.infer(gemm.dot(instr, out.dtype, out.dims), shapes[:2], {})
    assert isinstance(found, Shape)
    same_leaf(instr, 0, found)
    if gemm.beta:
        require(instr, shapes[2].dims == out.dims, f"C must be as {out}, got {shapes[2]}")
    if parts.bias is not None:
        bias = shapes[parts.bias]
        wanted = tuple(out.dims[d] for d in bias_dims(bias.rank, out))
        require(instr, bias.rank <= out.rank and wanted == bias.dims, f"{bias} fits not {out}")


def _host(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    gemm, leaves, arrays = _known(instr), result_leaves(instr), host_arrays(operands)
    parts = _parts(gemm, [a.ndim for a in arrays])
    assert parts is not None
    out = leaves[0]
    dims = dot_dims(gemm.dot(instr, _F32, out.dims), arrays[0].ndim, arrays[1].ndim)
    scale = np.prod([_number(arrays, k) for k in parts.scales]) * np.float32(gemm.alpha.real)
    total = contract(arrays[0], arrays[1], dims, _F32) * scale
    if gemm.beta:
        factor = np.float32(gemm.beta) * _number(arrays, parts.of_c)
        total = total + arrays[2].astype(np.float32) * factor
    if parts.bias is not None:
        total = total + spread(arrays[parts.bias].astype(np.float32), out)
    if gemm.activation:
        total = gemm.activation.host(total)
    results = [_saturated(total, _number(arrays, parts.of_d), out.dtype)]
    if _has_largest(instr):
        results.append(np.max(np.abs(total), initial=0).astype(np.float32))
    results += [np.zeros(s.dims, s.dtype.numpy) for s in leaves[len(results) :]]
    return as_result(instr, results)


def _number(arrays: Sequence[Array], operand: int | None) -> np.float32:
    """Return a scale, which is 1 where it is not given."""
    return np.float32(1 if operand is None else arrays[operand].astype(np.float32))


def _saturated(total: Array, scale: np.float32, dtype: DType) -> Array:
    if dtype.bits > 8:
        return total.astype(dtype.numpy)
    most = _largest(dtype)
    return np.asarray(np.clip(total * scale, -most, most).astype(dtype.numpy))


def _largest(dtype: DType) -> float:
    return float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]


def _device(element: Element, instr: Instruction, leaf: int, index: Index) -> Expr:
    gemm, out = _known(instr), result_leaves(instr)[0]
    if leaf:
        return zero(element, result_leaves(instr)[leaf].dtype)
    parts = _parts(gemm, [element.shape(k).rank for k in range(len(instr.operands))])
    assert parts is not None

    def scale(value: Expr, operand: int | None) -> Expr:
        if operand is None:
            return value
        factor = converted(element, operand, element.operand(operand), _F32)
        return element.bind(_F32, f"{value} * {factor}")

    total = device_dot(element, gemm.dot(instr, _F32, out.dims), index)
    total = scaled(element, total, gemm.alpha, _F32)
    for operand in parts.scales:
        total = scale(total, operand)
    if gemm.beta:
        added = converted(element, 2, element.operand(2, index), _F32)
        added = scale(scaled(element, added, complex(gemm.beta), _F32), parts.of_c)
        total = element.bind(_F32, f"{total} + {added}")
    if parts.bias is not None:
        place = tuple(index[d] for d in bias_dims(element.shape(parts.bias).rank, out))
        total = plus(element, total, parts.bias, place, _F32)
    total = activated(element, gemm.activation, total, _F32)
    if out.dtype.bits > 8:
        return element.bind(out.dtype, f"hlo::convert<hlo::{out.dtype}>({total})")
    most = f"{_largest(out.dtype)}f"
    total = element.bind(_F32, f"hlo::clamp(-{most}, {scale(total, parts.of_d)}, {most})")
    return element.bind(out.dtype, f"hlo::convert<hlo::{out.dtype}>({total})")


def _why_not(instr: Instruction) -> str | None:
    gemm = _gemm(instr)
    return gemm if isinstance(gemm, str) else None


def _on_device(instr: Instruction) -> DeviceChoice:
    if _has_largest(instr):
        return NoDevice("the largest size in a product is found on the host only")
    return ByLeaf(_device)


def _less_workspace(instr: Instruction) -> Instruction:
    return first_leaves(instr, 1 + _has_largest(instr))


CUBLAS_F8 = {"__cublas$lt$matmul$f8": Target(_check, _host, _on_device, _why_not, _less_workspace)}
