"""Matrix products of XLA:GPU: `__cublas$gemm` and `__cublas$lt$matmul` with their epilogues.

Operands are A, B, then C where beta is not 0, then the bias where the epilogue adds one. The result
is activation(alpha A B + beta C + bias); for GELU_AUX and BIAS_GELU_AUX what the activation was
given follows it. What else the result tuple holds is workspace, which has no meaning: it is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import pi, sqrt

import numpy as np

from hlo2graph.hlo import AnyShape, DType, Instruction, Shape
from hlo2graph.ops.custom_target import (
    DeviceChoice,
    Target,
    as_result,
    first_leaves,
    is_finite,
    json_config,
    result_leaves,
    same_leaf,
)
from hlo2graph.ops.device import ByLeaf, Element, Expr, Index, NoDevice
from hlo2graph.ops.device_products import accumulator, narrowed
from hlo2graph.ops.device_products import dot as device_dot
from hlo2graph.ops.dot import DOT, contract, dot_dims, narrow
from hlo2graph.ops.expect import as_arrays, host_arrays, require
from hlo2graph.ops.spec import Array, HostValue

_DIMS = {
    "lhs_contracting_dimensions": "lhs_contracting_dims",
    "rhs_contracting_dimensions": "rhs_contracting_dims",
    "lhs_batch_dimensions": "lhs_batch_dims",
    "rhs_batch_dimensions": "rhs_batch_dims",
}
_GELU_SLOPE, _GELU_CUBE = sqrt(2 / pi), 0.044715


@dataclass(frozen=True, slots=True)
class Activation:
    """What an epilogue applies: in NumPy, and as C++ where `T` is the type and `x` the element."""

    host: Callable[[Array], Array]
    device: str


def _relu(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(_GELU_SLOPE * (x + _GELU_CUBE * x * x * x))))


def _silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


RELU = Activation(_relu, "hlo::maximum({x}, ({T})0)")
_GELU = Activation(
    _gelu,
    f"({{T}})0.5 * {{x}} * (({{T}})1 + hlo::tanh(({{T}}){_GELU_SLOPE!r} * "
    f"({{x}} + ({{T}}){_GELU_CUBE} * {{x}} * {{x}} * {{x}})))",
)
_ACTIVATIONS: dict[str, Activation | None] = {
    "DEFAULT": None,
    "RELU": RELU,
    "GELU": _GELU,
    "SILU": Activation(_silu, "{x} / (({T})1 + hlo::exponential(-{x}))"),
}


@dataclass(frozen=True, slots=True)
class Gemm:
    """A matrix product as backend_config gives it; `dims` are the attributes of a dot."""

    dims: Mapping[str, tuple[int, ...]]
    alpha: complex
    beta: float
    activation: Activation | None
    has_bias: bool
    has_aux: bool

    @property
    def operands(self) -> int:
        """How many operands the call takes."""
        return 2 + (self.beta != 0) + self.has_bias

    @property
    def plain(self) -> bool:
        """Whether the call is a dot and nothing more."""
        return self.alpha == 1 and self.operands == 2 and self.activation is None

    def dot(self, instr: Instruction, dtype: DType, dims: tuple[int, ...]) -> Instruction:
        """Return the dot of the first two operands."""
        return Instruction(
            instr.name,
            "dot",
            Shape(dtype, dims),
            instr.operands[:2],
            dict(self.dims),
            span=instr.span,
        )


def gemm_of(instr: Instruction, spare: tuple[int, int] = (0, 0)) -> Gemm | str:
    """Return what backend_config asks for, or why that cannot be told or done.

    spare: the fewest and most operands that the call has besides those of the product.
    """
    config = json_config(instr, "gemm_backend_config")
    dims = _dims(config.get("dot_dimension_numbers")) if config else None
    if config is None or dims is None:
        return "its backend_config has no gemm_backend_config with dot_dimension_numbers"
    epilogue = str(config.get("epilogue", "DEFAULT"))
    has_aux, has_bias = epilogue.endswith("_AUX"), epilogue.startswith("BIAS")
    word = epilogue.removesuffix("_AUX").removeprefix("BIAS").lstrip("_") or "DEFAULT"
    if word not in _ACTIVATIONS or (has_aux and word != "GELU"):
        return f"the epilogue {epilogue} is not known"
    numbers = [config.get(k, d) for k, d in (("alpha_real", 1), ("alpha_imag", 0), ("beta", 0))]
    if not all(map(is_finite, numbers)):
        return "alpha and beta must be finite numbers"
    alpha, imaginary, beta = map(float, numbers)
    activation = _ACTIVATIONS[word]
    gemm = Gemm(dims, complex(alpha, imaginary), beta, activation, has_bias, has_aux)
    return _unfit(instr, gemm, spare) or gemm


def _unfit(instr: Instruction, gemm: Gemm, spare: tuple[int, int]) -> str | None:
    """Return why operands and result cannot be those of `gemm`."""
    leaves = result_leaves(instr)
    if len(leaves) < 1 + gemm.has_aux:
        return f"it gives {1 + gemm.has_aux} arrays, but {instr.shape} is written"
    if not spare[0] <= len(instr.operands) - gemm.operands <= spare[1]:
        scales = f" and {spare[0]} to {spare[1]} scales" if spare[1] else ""
        return f"it takes {gemm.operands} operands{scales} with this epilogue, beta={gemm.beta:g}"
    dtype = leaves[0].dtype
    if gemm.alpha.imag and not dtype.is_complex:
        return "alpha is complex, the result is not"
    if dtype.is_complex and gemm.activation:
        return "no activation is defined for complex numbers"
    whole = gemm.alpha.real.is_integer() and gemm.beta.is_integer()
    if not (dtype.is_float or dtype.is_complex) and (gemm.activation or not whole):
        return "integers take no activation, and only whole alpha and beta"
    return None


def _dims(held: object) -> dict[str, tuple[int, ...]] | None:
    if not isinstance(held, dict):
        return None
    try:
        return {ours: tuple(int(d) for d in held.get(theirs, ())) for theirs, ours in _DIMS.items()}
    except (TypeError, ValueError, OverflowError):
        return None


def _known(instr: Instruction) -> Gemm:
    gemm = gemm_of(instr)
    assert isinstance(gemm, Gemm)
    return gemm


def _check(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    gemm, leaves = _known(instr), result_leaves(instr)
    shapes = as_arrays(instr, operands)
    out = leaves[0]
    dot = gemm.dot(instr, out.dtype, out.dims)
    found = DOT.infer(dot, shapes[:2], {})
    assert isinstance(found, Shape)
    same_leaf(instr, 0, found)
    if gemm.has_aux:
        same_leaf(instr, 1, Shape(leaves[1].dtype, found.dims))
    if gemm.beta:
        added = shapes[2]
        require(instr, added.dims == out.dims, f"C must have the dimensions of {out}, got {added}")
    if gemm.has_bias:
        bias = shapes[-1]
        wanted = tuple(out.dims[d] for d in bias_dims(bias.rank, out))
        fits = 0 < bias.rank <= out.rank and wanted == bias.dims
        require(instr, fits, f"the bias {bias} does not fit the fastest dimensions of {out}")


def bias_dims(rank: int, out: Shape) -> tuple[int, ...]:
    """Return the result's dimension of each dimension of the bias: those that vary fastest."""
    return tuple(reversed(out.minor_to_major[:rank]))


def _host(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    gemm, leaves = _known(instr), result_leaves(instr)
    arrays = host_arrays(operands)
    lhs, rhs = arrays[:2]
    out = leaves[0]
    wide = accumulator(out.dtype)
    dims = dot_dims(gemm.dot(instr, wide, out.dims), lhs.ndim, rhs.ndim)
    total = contract(lhs, rhs, dims, wide)
    if gemm.alpha != 1:
        total = total * _scalar(gemm.alpha, wide)
    if gemm.beta:
        total = total + arrays[2].astype(wide.numpy) * _scalar(gemm.beta, wide)
    if gemm.has_bias:
        total = total + spread(arrays[-1].astype(wide.numpy), out)
    given = total
    if gemm.activation:
        total = gemm.activation.host(total)
    results = [narrow(total, out.dtype)]
    if gemm.has_aux:
        results.append(given.astype(leaves[1].dtype.numpy))
    results += [np.zeros(s.dims, s.dtype.numpy) for s in leaves[len(results) :]]
    return as_result(instr, results)


def _scalar(value: complex, dtype: DType) -> Array:
    return np.asarray(value if dtype.is_complex else value.real, dtype.numpy)


def spread(bias: Array, out: Shape) -> Array:
    """Lay the bias along the result's fastest dimensions."""
    dims = bias_dims(bias.ndim, out)
    sizes = [n if d in dims else 1 for d, n in enumerate(out.dims)]
    return bias.transpose(np.argsort(dims)).reshape(sizes)


def scaled(element: Element, value: Expr, factor: complex, dtype: DType) -> Expr:
    """Return `value` times a number known when compiling."""
    if factor == 1:
        return value
    if factor.imag:
        part = "f32" if dtype.bits == 64 else "f64"
        number = f"hlo::complex((hlo::{part}){factor.real!r}, (hlo::{part}){factor.imag!r})"
    else:
        number = f"hlo::convert<hlo::{dtype}>((hlo::f64){factor.real!r})"
    return element.bind(dtype, f"hlo::multiply({value}, {number})")


def plus(element: Element, value: Expr, operand: int, place: Index, dtype: DType) -> Expr:
    """Return `value` plus an element of an operand."""
    other = element.operand(operand, place)
    return element.bind(dtype, f"hlo::add({value}, {converted(element, operand, other, dtype)})")


def converted(element: Element, operand: int, value: Expr, dtype: DType) -> Expr:
    """Return an operand's element in `dtype`."""
    same = element.shape(operand).dtype is dtype
    return value if same else f"hlo::convert<hlo::{dtype}>({value})"


def activated(element: Element, activation: Activation | None, value: Expr, dtype: DType) -> Expr:
    """Return the activation of `value`."""
    if activation is None:
        return value
    return element.bind(dtype, activation.device.format(x=value, T=f"hlo::{dtype}"))


def zero(element: Element, dtype: DType) -> Expr:
    """Return what workspace holds."""
    return element.bind(dtype, f"hlo::convert<hlo::{dtype}>((hlo::s64)0)")


def _device(element: Element, instr: Instruction, leaf: int, index: Index) -> Expr:
    gemm, leaves = _known(instr), result_leaves(instr)
    out = leaves[0]
    if leaf > gemm.has_aux:
        return zero(element, leaves[leaf].dtype)
    wide = accumulator(out.dtype)
    total = device_dot(element, gemm.dot(instr, wide, out.dims), index)
    total = scaled(element, total, gemm.alpha, wide)
    if gemm.beta:
        added = converted(element, 2, element.operand(2, index), wide)
        added = scaled(element, added, complex(gemm.beta), wide)
        total = element.bind(wide, f"hlo::add({total}, {added})")
    if gemm.has_bias:
        last = len(instr.operands) - 1
        place = tuple(index[d] for d in bias_dims(element.shape(last).rank, out))
        total = plus(element, total, last, place, wide)
    if leaf == 0:
        total = activated(element, gemm.activation, total, wide)
    return narrowed(element, total, wide, leaves[leaf].dtype)


def _why_not(instr: Instruction) -> str | None:
    gemm = gemm_of(instr)
    return gemm if isinstance(gemm, str) else None


def _on_device(instr: Instruction) -> DeviceChoice:
    reason = _why_not(instr)
    return NoDevice(reason) if reason else ByLeaf(_device)


def _less_workspace(instr: Instruction) -> Instruction:
    gemm = _known(instr)
    if not gemm.plain:
        return first_leaves(instr, 1 + gemm.has_aux)
    dot = gemm.dot(instr, result_leaves(instr)[0].dtype, ())
    kept = {k: v for k, v in instr.attrs.items() if k in ("control-predecessors", "metadata")}
    return replace(dot, shape=result_leaves(instr)[0], attrs={**dot.attrs, **kept})


_GEMM = Target(_check, _host, _on_device, _why_not, _less_workspace)
CUBLAS = {"__cublas$gemm": _GEMM, "__cublas$lt$matmul": _GEMM}
