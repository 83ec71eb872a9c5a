"""Convolutions of XLA:GPU: `__cudnn$convForward` and its relatives, each as one convolution.

All are written with the window and dim_labels of the forward convolution:

- convForward: y of x and w.
- convBackwardInput: dx of dy and w: dy spread by the stride, w turned around and transposed.
- convBackwardFilter: dw of x and dy: the batch is summed over, dy is the kernel.
- convBiasActivationForward: activation(scale * y + side_scale * side + bias).

The first leaf of the result is the convolution's; what follows is workspace, which is zero here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hlo2graph.hlo import AnyShape, Attribute, DimLabels, DType, Instruction, Shape, Window
from hlo2graph.hlo import WindowDim as Dim
from hlo2graph.ops.convolution import CONVOLUTION, convolve
from hlo2graph.ops.custom_cublas import RELU, Activation, activated, plus, scaled, zero
from hlo2graph.ops.custom_cublas import converted as as_type
from hlo2graph.ops.custom_target import (
    DeviceChoice,
    Target,
    as_result,
    first_leaves,
    is_finite,
    json_config,
    result_leaves,
    same_leaf,
    target_of,
)
from hlo2graph.ops.device import ByLeaf, Element, Expr, Index, NoDevice
from hlo2graph.ops.device_products import accumulator, narrowed
from hlo2graph.ops.device_products import convolution as device_convolution
from hlo2graph.ops.dot import narrow
from hlo2graph.ops.expect import as_arrays, host_arrays, integer, require
from hlo2graph.ops.spec import Array, HostValue

FORWARD, FUSED = "__cudnn$convForward", "__cudnn$convBiasActivationForward"
BACKWARD_INPUT, BACKWARD_FILTER = "__cudnn$convBackwardInput", "__cudnn$convBackwardFilter"
_CONVOLUTION = CONVOLUTION[0]


def _relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def _elu(x: Array) -> Array:
    return np.where(x > 0, x, np.expm1(x))


def _activation(config: Mapping[str, Any]) -> Activation | str | None:
    """Return the activation that the configuration names, or why there is none."""
    mode = str(config.get("activation_mode", "kNone"))
    slope = float(config.get("leakyrelu_alpha", 0))
    known: dict[str, Activation | None] = {
        "kNone": None,
        "kRelu": RELU,
        "kRelu6": Activation(_relu6, "hlo::minimum(hlo::maximum({x}, ({T})0), ({T})6)"),
        "kElu": Activation(_elu, "({x} > ({T})0 ? {x} : hlo::exponential_minus_one({x}))"),
        "kLeakyRelu": Activation(
            lambda x: np.where(x > 0, x, x * x.dtype.type(slope)),
            f"({{x}} > ({{T}})0 ? {{x}} : {{x}} * ({{T}}){slope!r})",
        ),
    }
    return known.get(mode, f"the activation {mode} is not known")


@dataclass(frozen=True, slots=True)
class Fused:
    """What is done with a convolution's sums."""

    scale: float
    side_scale: float
    activation: Activation | None

    @property
    def plain(self) -> bool:
        """Whether the sums are the result."""
        return self.scale == 1 and self.activation is None


def _fused(instr: Instruction) -> Fused | str:
    config = json_config(instr, "cudnn_conv_backend_config")
    if config is None:
        return "its backend_config is not JSON"
    names = (("conv_result_scale", 1), ("side_input_scale", 0), ("leakyrelu_alpha", 0))
    numbers = [config.get(name, missing) for name, missing in names]
    if not all(map(is_finite, numbers)):
        return "its scales must be finite numbers"
    activation = _activation(config)
    if isinstance(activation, str):
        return activation
    return Fused(float(numbers[0]), float(numbers[1]), activation)


def _why_not(instr: Instruction) -> str | None:
    fused, leaves, fuses = _fused(instr), result_leaves(instr), target_of(instr) == FUSED
    if isinstance(fused, str):
        return fused
    least, most = (3, 4) if fuses else (2, 2)
    if not leaves or not least <= len(instr.operands) <= most:
        return f"it takes {least} operands and gives an array"
    if not leaves[0].dtype.is_float and (fuses or not fused.plain):
        return "only floating-point numbers are scaled and activated"
    return _why_not_window(instr)


def _why_not_window(instr: Instruction) -> str | None:
    labels, window = instr.attrs.get("dim_labels"), instr.attrs.get("window", Window(()))
    if not isinstance(labels, DimLabels) or "?" in labels.lhs + labels.rhs + labels.out:
        return "it needs dim_labels without vectors of features"
    assert isinstance(window, Window)
    backward = target_of(instr) in (BACKWARD_INPUT, BACKWARD_FILTER)
    if target_of(instr) == BACKWARD_FILTER and any(d.reversal for d in window.dims):
        return "its window is reversed"
    if backward and any(d.lhs_dilate != 1 for d in window.dims):
        return "its window dilates the input"
    if integer(instr, "batch_group_count", 1) != 1:
        return "it has batch groups"
    return None


def _plain(instr: Instruction, dtype: DType, lhs: Shape, rhs: Shape) -> Instruction:
    """Return the convolution of the first two operands, whose sums are kept in `dtype`."""
    labels, window = instr.attrs["dim_labels"], instr.attrs.get("window", Window(()))
    assert isinstance(labels, DimLabels)
    assert isinstance(window, Window)
    groups = integer(instr, "feature_group_count", 1)
    out = result_leaves(instr)[0]
    given = {"lhs": lhs, "rhs": rhs, "out": out}
    turned: tuple[DimLabels, Window, dict[str, Attribute]]
    match target_of(instr):
        case name if name == BACKWARD_INPUT:
            turned = _backward_input(labels, window, groups, given)
        case name if name == BACKWARD_FILTER:
            turned = _backward_filter(labels, window, groups, given)
        case _:
            turned = labels, window, {"feature_group_count": groups}
    attrs = {"dim_labels": turned[0], "window": turned[1], **turned[2]}
    shape = Shape(dtype, out.dims)
    return Instruction(instr.name, "convolution", shape, instr.operands[:2], attrs, span=instr.span)


def _swapped(text: str, letters: Mapping[str, str]) -> str:
    return "".join(letters.get(c, c) for c in text)


def _size(labels: str, dims: Sequence[int], number: int) -> int:
    """Return the size of a spatial dimension, or 0 if there is none of that number."""
    at = labels.find(str(number))
    return dims[at] if 0 <= at < len(dims) else 0


def _backward_input(
    labels: DimLabels, window: Window, groups: int, given: Mapping[str, Shape]
) -> tuple[DimLabels, Window, dict[str, Attribute]]:
    """The kernel's features change parts; the padding is what brings back the input's size."""
    dims = []
    for number, d in enumerate(window.dims):
        size, count = (
            _size(labels.lhs, given["out"].dims, number),
            _size(labels.out, given["lhs"].dims, number),
        )
        span = (d.size - 1) * d.rhs_dilate
        low = span - d.pad_low
        spread = max(count - 1, 0) * d.stride + min(count, 1)
        high = size - spread - low + span
        dims.append(Dim(d.size, 1, low, high, d.stride, d.rhs_dilate, not d.reversal))
    turned = DimLabels(labels.out, _swapped(labels.rhs, {"i": "o", "o": "i"}), labels.lhs)
    return turned, Window(tuple(dims)), {"feature_group_count": groups}


def _backward_filter(
    labels: DimLabels, window: Window, groups: int, given: Mapping[str, Shape]
) -> tuple[DimLabels, Window, dict[str, Attribute]]:
    """Batch and features of x change parts; dy is the kernel, strides and dilations are swapped."""
    dims = []
    for number, d in enumerate(window.dims):
        size, count = (
            _size(labels.lhs, given["lhs"].dims, number),
            _size(labels.out, given["rhs"].dims, number),
        )
        reach = (d.size - 1) * d.rhs_dilate + max(count - 1, 0) * d.stride + 1
        dims.append(Dim(count, d.rhs_dilate, d.pad_low, reach - size - d.pad_low, 1, d.stride))
    turned = DimLabels(
        _swapped(labels.lhs, {"b": "f", "f": "b"}),
        _swapped(labels.out, {"b": "i", "f": "o"}),
        _swapped(labels.rhs, {"i": "b", "o": "f"}),
    )
    return turned, Window(tuple(dims)), {"batch_group_count": groups}


def _regrouped(instr: Instruction, shape: Shape) -> Shape:
    """Return the kernel's shape as the convolution has it."""
    groups = _kernel_groups(instr)
    labels = instr.attrs["dim_labels"]
    assert isinstance(labels, DimLabels)
    i, o = labels.rhs.find("i"), labels.rhs.find("o")
    if groups == 1 or not (0 <= i < shape.rank and 0 <= o < shape.rank):
        return shape
    require(instr, shape.dims[o] % groups == 0, f"{shape} cannot be cut into {groups} groups")
    dims = list(shape.dims)
    dims[i], dims[o] = dims[i] * groups, dims[o] // groups
    return Shape(shape.dtype, tuple(dims))


def _kernel_groups(instr: Instruction) -> int:
    """Return into how many groups the kernel has to be cut before its features change parts."""
    groups = integer(instr, "feature_group_count", 1)
    require(instr, groups > 0, f"feature_group_count must be positive, got {groups}")
    return groups if target_of(instr) == BACKWARD_INPUT else 1


def _regroup(instr: Instruction, kernel: Array) -> Array:
    """Give each group's output features to its input features: [o, i] becomes [o/g, g i]."""
    groups = _kernel_groups(instr)
    if groups == 1:
        return kernel
    labels = instr.attrs["dim_labels"]
    assert isinstance(labels, DimLabels)
    axes = labels.rhs.index("o"), labels.rhs.index("i")
    front = np.moveaxis(kernel, axes, (0, 1))
    outputs, inputs, *rest = front.shape
    cut = front.reshape(groups, outputs // groups, inputs, *rest).swapaxes(0, 1)
    return np.moveaxis(cut.reshape(outputs // groups, groups * inputs, *rest), (0, 1), axes)


def _check(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    lhs, rhs, *others = as_arrays(instr, operands)
    out = result_leaves(instr)[0]
    kernel = _regrouped(instr, rhs)
    found = _CONVOLUTION.infer(_plain(instr, out.dtype, lhs, rhs), (lhs, kernel), {})
    assert isinstance(found, Shape)
    same_leaf(instr, 0, found)
    if others:
        labels = instr.attrs["dim_labels"]
        assert isinstance(labels, DimLabels)
        wanted = (out.dims[labels.out.index("f")],)
        require(instr, others[0].dims == wanted, f"the bias must be of {wanted[0]} elements")
    for side in others[1:]:
        require(instr, side.dims == out.dims, f"the side input must be as {out}, got {side}")


def _host(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    lhs, rhs, *others = host_arrays(operands)
    leaves, fused = result_leaves(instr), _known(instr)
    out, wide = leaves[0].dtype, accumulator(leaves[0].dtype)
    shapes = [Shape(out, a.shape) for a in (lhs, rhs)]
    total = convolve(_plain(instr, wide, *shapes), lhs, _regroup(instr, rhs))
    if fused.scale != 1:
        total = total * np.asarray(fused.scale, total.dtype)
    if len(others) > 1:
        total = total + others[1].astype(total.dtype) * np.asarray(fused.side_scale, total.dtype)
    if others:
        labels = instr.attrs["dim_labels"]
        assert isinstance(labels, DimLabels)
        along = [-1 if c == "f" else 1 for c in labels.out]
        total = total + others[0].astype(total.dtype).reshape(along)
    if fused.activation:
        total = fused.activation.host(total)
    workspace = [np.zeros(s.dims, s.dtype.numpy) for s in leaves[1:]]
    return as_result(instr, [narrow(total, out), *workspace])


def _known(instr: Instruction) -> Fused:
    fused = _fused(instr)
    assert isinstance(fused, Fused)
    return fused


def _device(element: Element, instr: Instruction, leaf: int, index: Index) -> Expr:
    leaves, fused = result_leaves(instr), _known(instr)
    out = leaves[0].dtype
    if leaf:
        return zero(element, leaves[leaf].dtype)
    wide = accumulator(out)
    plain = _plain(instr, wide, element.shape(0), element.shape(1))
    total = scaled(element, device_convolution(element, plain, index), fused.scale, wide)
    if len(instr.operands) > 3:
        side = as_type(element, 3, element.operand(3, index), wide)
        side = scaled(element, side, fused.side_scale, wide)
        total = element.bind(wide, f"hlo::add({total}, {side})")
    if len(instr.operands) > 2:
        labels = instr.attrs["dim_labels"]
        assert isinstance(labels, DimLabels)
        total = plus(element, total, 2, (index[labels.out.index("f")],), wide)
    return narrowed(element, activated(element, fused.activation, total, wide), wide, out)


def _on_device(instr: Instruction) -> DeviceChoice:
    if _kernel_groups(instr) > 1:
        return NoDevice("the gradient of a grouped convolution's input runs on the host only")
    return ByLeaf(_device)


def _less_workspace(instr: Instruction) -> Instruction:
    if target_of(instr) != FORWARD or not _known(instr).plain:
        return first_leaves(instr, 1)
    names = ("window", "dim_labels", "feature_group_count", "control-predecessors", "metadata")
    attrs = {k: v for k, v in instr.attrs.items() if k in names}
    return replace(instr, opcode="convolution", shape=result_leaves(instr)[0], attrs=attrs)


_CONV = Target(_check, _host, _on_device, _why_not, _less_workspace)
CUDNN = dict.fromkeys((FORWARD, BACKWARD_INPUT, BACKWARD_FILTER, FUSED), _CONV)
