"""Calls of JAX's own GPU kernels, of XLA:GPU's libraries with a plain meaning, and what is refused.

- `cu_lu_pivots_to_permutation`: exchanges of rows as the order that they leave.
- `cu_threefry2x32_ffi`: ThreeFry of keys and counters, element by element.
- `__cublas$triangularSolve`: HLO's triangular-solve with a workspace.
- `__op$block_scaled_dot`: HLO's scaled-dot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, Attribute, Instruction, Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.custom_target import (
    DeviceChoice,
    Target,
    as_result,
    json_config,
    on_device,
    result_leaves,
    same_leaf,
    target_of,
)
from hlo2graph.ops.device import ByLeaf, Element, Expr, Index, NoDevice
from hlo2graph.ops.expect import as_arrays, host_arrays, require
from hlo2graph.ops.linalg import LINALG, TRANSPOSES, solve_triangle
from hlo2graph.ops.random import threefry
from hlo2graph.ops.scaled_dot import SCALED_DOT, scaled_dot
from hlo2graph.ops.spec import HostValue

_SOLVE = LINALG[1]
U32 = DTYPES["u32"]


def _check_pivots(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    shapes, leaves = as_arrays(instr, operands), result_leaves(instr)
    require(instr, len(shapes) == 1 and len(leaves) == 1, "takes pivots, gives an order")
    pivots, order = shapes[0], leaves[0]
    fits = pivots.rank == order.rank > 0 and pivots.dims[:-1] == order.dims[:-1]
    typed = pivots.dtype is S32 and order.dtype is S32
    enough = fits and order.dims[-1] >= pivots.dims[-1]
    require(instr, typed and enough, f"takes s32 pivots of no more rows, got {pivots}, {order}")


def _pivots_to_order(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    (pivots,) = host_arrays(operands)
    (leaf,) = result_leaves(instr)
    order = np.broadcast_to(np.arange(leaf.dims[-1], dtype=np.int32), leaf.dims).copy()
    for batch in np.ndindex(pivots.shape[:-1]):
        row = order[batch]
        for at, other in enumerate(pivots[batch]):
            if 0 <= other < len(row):
                row[[at, other]] = row[[other, at]]
    return as_result(instr, [order])


def _order_element(element: Element, instr: Instruction, leaf: int, index: Index) -> Expr:
    """Follow a row back through the exchanges, from the last to the first."""
    assert leaf == 0
    *batch, row = index
    count = element.shape(0).dims[-1]
    rows = result_leaves(instr)[0].dims[-1]
    place = element.variable(S32, f"(hlo::s32)({row})")
    step = element.fresh("k")
    with element.block(f"for (int {step} = {count - 1}; {step} >= 0; --{step})"):
        pivot = element.operand(0, (*batch, step))
        there = element.variable(S32, f"{pivot} >= 0 && {pivot} < {rows} ? {pivot} : {step}")
        element.line(f"if ({place} == {step}) {place} = {there};")
        element.line(f"else if ({place} == {there}) {place} = {step};")
    return place


def _check_threefry(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    shapes, leaves = as_arrays(instr, operands), result_leaves(instr)
    require(instr, len(shapes) == 4 and len(leaves) == 2, "takes two keys and two counters")
    for shape in (*shapes, *leaves):
        fits = shape.dtype is U32 and shape.dims == shapes[0].dims
        require(instr, fits, f"takes and gives u32 of one size, got {shape}")


def _threefry(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    first, second, low, high = host_arrays(operands)
    return as_result(instr, threefry([low, high], [first, second]))


def _threefry_element(element: Element, _: Instruction, leaf: int, index: Index) -> Expr:
    words = [f"(hlo::u64){element.operand(k, index)}" for k in range(4)]
    key, counter = (f"{low} | {high} << 32" for low, high in (words[:2], words[2:]))
    return element.bind(U32, f"hlo::threefry({key}, {counter}, {leaf})")


def _solve_options(instr: Instruction) -> dict[str, Attribute] | str:
    config = json_config(instr, "triangular_solve_backend_config")
    if config is None or config.get("transpose_a") not in TRANSPOSES:
        return f"needs transpose_a in its backend_config, one of {', '.join(TRANSPOSES)}"
    names = ("left_side", "lower", "unit_diagonal")
    return {
        "transpose_a": str(config["transpose_a"]),
        **{k: config.get(k) is True for k in names},
    }


def _why_not_solve(instr: Instruction) -> str | None:
    options = _solve_options(instr)
    if isinstance(options, str):
        return options
    return None if result_leaves(instr) else "it gives arrays"


def _plain_solve(instr: Instruction) -> Instruction:
    """Return the call as HLO's operation, without its workspace."""
    options = _solve_options(instr)
    assert not isinstance(options, str)
    kept = {k: v for k, v in instr.attrs.items() if k in ("control-predecessors", "metadata")}
    shape = result_leaves(instr)[0]
    return replace(instr, opcode="triangular-solve", shape=shape, attrs={**options, **kept})


def _check_solve(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    require(instr, len(operands) == 2, f"takes a triangle and a matrix, got {len(operands)}")
    found = _SOLVE.infer(_plain_solve(instr), operands, {})
    assert isinstance(found, Shape)
    same_leaf(instr, 0, found)


def _host_solve(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    solved = solve_triangle(_plain_solve(instr), operands)
    rest = result_leaves(instr)[1:]
    return as_result(instr, [solved, *(np.zeros(s.dims, s.dtype.numpy) for s in rest)])


def _refused(reason: str) -> Target:
    def check(_: Instruction, __: Sequence[AnyShape]) -> None:
        """Ask nothing of what does not run."""

    def host(instr: Instruction, _: Sequence[HostValue]) -> HostValue:
        raise AssertionError(f"{target_of(instr)} is refused before it runs")

    def device(_: Instruction) -> DeviceChoice:
        return NoDevice(reason)

    return Target(check, host, device, lambda _: reason)


def _plain_scaled(instr: Instruction) -> Instruction:
    """Return the call as HLO's operation: batches, rows and columns by what is summed over."""
    kept = {k: v for k, v in instr.attrs.items() if k in ("control-predecessors", "metadata")}
    batch = {"lhs_batch_dims": (0,), "rhs_batch_dims": (0,)}
    summed = {"lhs_contracting_dims": (2,), "rhs_contracting_dims": (2,)}
    return replace(instr, opcode="scaled-dot", attrs={**batch, **summed, **kept})


def _check_scaled(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    require(instr, len(operands) == 4, f"takes two arrays and their scales, got {len(operands)}")
    ranks = [shape.rank for shape in as_arrays(instr, operands)]
    require(instr, ranks == [3, 3, 3, 3], f"takes arrays of three dimensions, got {ranks}")
    found = SCALED_DOT.infer(_plain_scaled(instr), operands, {})
    require(instr, found.compatible(instr.shape), f"gives {found}, but {instr.shape} is written")


def _host_scaled(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    return scaled_dot(_plain_scaled(instr), operands)


_PIVOTS = Target(_check_pivots, _pivots_to_order, on_device(ByLeaf(_order_element)))
_THREEFRY = Target(_check_threefry, _threefry, on_device(ByLeaf(_threefry_element)))
_CALLBACK = "calls back into the Python process that made the program"
_COMPILED = "holds a kernel that another compiler made"
_DYNAMIC = "makes an array whose size is known only at run time"
_LIBRARY = "asks for a fused operation of a library, which no HLO describes"
_PERTURBED = "perturbs pivots by amounts that its library keeps to itself"
_SCORES = ("Softmax", "SoftmaxDropout", "ScaleBiasSoftmax", "ScaleBiasSoftmaxDropout")
_ATTENTION = tuple(
    f"__cudnn$fmha{kind}"
    for kind in (*_SCORES, *(f"{s}Backward" for s in _SCORES), "SoftmaxF8", "SoftmaxBackwardF8")
)
REFUSALS = (_CALLBACK, _COMPILED, _DYNAMIC, _LIBRARY, _PERTURBED)
JAX = {
    "__cublas$triangularSolve": Target(
        _check_solve,
        _host_solve,
        on_device(NoDevice("becomes HLO's operation")),
        _why_not_solve,
        _plain_solve,
    ),
    "__op$block_scaled_dot": Target(
        _check_scaled,
        _host_scaled,
        on_device(NoDevice("becomes HLO's operation")),
        less_workspace=_plain_scaled,
    ),
    **dict.fromkeys(("cu_lu_pivots_to_permutation", "hip_lu_pivots_to_permutation"), _PIVOTS),
    **dict.fromkeys(("cu_threefry2x32_ffi", "hip_threefry2x32_ffi"), _THREEFRY),
    **{
        name: _refused(reason)
        for reason, names in (
            (_CALLBACK, ("xla_ffi_python_cpu_callback", "xla_ffi_python_gpu_callback")),
            (_CALLBACK, ("xla_python_cpu_callback", "xla_python_gpu_callback")),
            (_CALLBACK, tuple(f"xla_buffer_python_{d}_callback" for d in ("cpu", "gpu"))),
            (_CALLBACK, tuple(f"xla_ffi_partitioned_python_{d}_callback" for d in ("cpu", "gpu"))),
            (
                _COMPILED,
                ("__gpu$xla.gpu.triton", "triton_kernel_call", "mosaic_gpu", "mosaic_gpu_v2"),
            ),
            (_COMPILED, ("tpu_custom_call",)),
            (_DYNAMIC, ("PadToStatic", "SliceToDynamic")),
            (_LIBRARY, ("__cudnn$convForwardGraph", "__cudnn$norm", "__cudnn$fusion")),
            (_LIBRARY, _ATTENTION),
            (_PERTURBED, ("tridiagonal_solve_perturbed_ffi", "cu_tridiagonal_solve_perturbed")),
        )
        for name in names
    },
}
