"""custom-call: a registry by target. A target that is not here is refused by its name.

The written shape decides a custom call's result, as in XLA; a registered target checks it before
a module is planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from hlo2graph.errors import VerifyError
from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.custom_cublas import CUBLAS
from hlo2graph.ops.custom_cublas_f8 import CUBLAS_F8
from hlo2graph.ops.custom_cudnn import CUDNN
from hlo2graph.ops.custom_cusolver import CUSOLVER
from hlo2graph.ops.custom_jax import JAX
from hlo2graph.ops.custom_lapack import LAPACK, factors_block, factors_panel
from hlo2graph.ops.custom_sort import CUB
from hlo2graph.ops.custom_target import DeviceChoice, Target, on_device, target_of
from hlo2graph.ops.device import ByInstruction, NoDevice, OwnKernel
from hlo2graph.ops.device_shaping import same_index
from hlo2graph.ops.expect import host_arrays, refuse, require
from hlo2graph.ops.sort_digits import (
    COUNT_DIGITS,
    SORT_DIGITS,
    begins_with_digits,
    count_digits,
    infer_counts,
    infer_sorted,
    sort_digits,
    why_not_digits,
)
from hlo2graph.ops.sort_runs import SORT_RUNS, infer_runs, sort_runs, sorts_windows, why_not_runs
from hlo2graph.ops.sorting import top_k
from hlo2graph.ops.spec import Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.top_places import (
    TOP_PLACES,
    infer_top_places,
    top_places,
    why_not_top_places,
)


def _check_no_shape(_: Instruction, __: Sequence[AnyShape]) -> None:
    """Accept any shapes: the marks change them between a whole array and the part of a device."""


def _identity(_: Instruction, operands: Sequence[HostValue]) -> HostValue:
    return operands[0]


def _check_top_k(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    """Require values[..., k] and s32[..., k] for k no more than the last dimension."""
    require(instr, len(operands) == 1, f"TopK takes one operand, got {len(operands)}")
    array, parts = operands[0], getattr(instr.shape, "parts", ())
    if not isinstance(array, Shape) or not array.dims or array.dtype.is_complex:
        refuse(instr, f"TopK takes an array of real numbers, got {array}")
    values = parts[0] if parts else None
    k = values.dims[-1] if isinstance(values, Shape) and values.dims else 0
    dims = (*array.dims[:-1], min(k, array.dims[-1]))
    wanted = TupleShape((Shape(array.dtype, dims), Shape(S32, dims)))
    require(instr, wanted.compatible(instr.shape), f"TopK returns {wanted}, not {instr.shape}")


def _top_k(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    (array,) = host_arrays(operands)
    k = next(instr.shape.leaves()).dims[-1]
    return top_k(array, k)


_IDENTITY = Target(_check_no_shape, _identity, on_device(same_index))
_TOP_K = Target(_check_top_k, _top_k, on_device(OwnKernel("topk")))
_MARKS = (  # of where a value is or should be, which one device keeps as it is
    *("LayoutConstraint", "MoveToDevice", "MoveToHost", "annotate_device_placement", "SetBound"),
    *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"),
    *("ShardBarrierFrom", "ShardBarrierTo"),
    *("xla.sdy.FuncResultSharding", "xla.sdy.PropagationBarrier"),
)
TARGETS = {
    **dict.fromkeys(_MARKS, _IDENTITY),
    "TopK": _TOP_K,
    "__gpu$TopK": _TOP_K,
    **CUB,
    **CUBLAS,
    **CUBLAS_F8,
    **CUDNN,
    **CUSOLVER,
    **JAX,
    **LAPACK,
}


@dataclass(frozen=True, slots=True)
class _Step:
    """A call that passes write. `takes_in` tells whether its kernel reads each operand once."""

    form: str
    infer: Callable[[Instruction, Sequence[AnyShape], Computations], AnyShape]
    host: Callable[[Instruction, Sequence[HostValue], Evaluator], HostValue]
    why_not: Callable[[Instruction], str | None]
    takes_in: Callable[[Instruction], bool]


_STEPS: Mapping[str, _Step] = MappingProxyType(
    {
        SORT_RUNS: _Step("sort-runs", infer_runs, sort_runs, why_not_runs, sorts_windows),
        COUNT_DIGITS: _Step(
            "count-digits", infer_counts, count_digits, why_not_digits, lambda _: False
        ),
        SORT_DIGITS: _Step(
            "sort-digits", infer_sorted, sort_digits, why_not_digits, begins_with_digits
        ),
        TOP_PLACES: _Step("topk", infer_top_places, top_places, why_not_top_places, lambda _: True),
    }
)


def _infer(
    instr: Instruction, operands: Sequence[AnyShape], computations: Computations
) -> AnyShape:
    require(instr, "custom_call_target" in instr.attrs, "needs the attribute custom_call_target")
    step = _STEPS.get(target_of(instr))
    return step.infer(instr, operands, computations) if step else instr.shape


def check_call(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    """Check what a library is given by a call that can run, and what it makes of it.

    Neither is a matter of legal HLO.

    Raises:
        VerifyError: they do not fit.
    """
    target = TARGETS.get(target_of(instr))
    if target is not None and target.why_not(instr) is None:
        target.check(instr, operands)


def misfit(instr: Instruction, operands: Sequence[AnyShape]) -> str | None:
    """Say why a call cannot run with operands of these shapes, or None."""
    try:
        check_call(instr, operands)
    except VerifyError as error:
        return error.message
    if TARGETS.get(target_of(instr)) is not _IDENTITY:
        return None
    if len(operands) == 1 and operands[0].compatible(instr.shape):
        return None
    given = ", ".join(shape.without_layout_text() for shape in operands)
    return f"makes {instr.shape.without_layout_text()} of {given}, which takes several devices"


def _run(instr: Instruction, operands: Sequence[HostValue], evaluate: Evaluator) -> HostValue:
    if step := _STEPS.get(target_of(instr)):
        return step.host(instr, operands, evaluate)
    return TARGETS[target_of(instr)].host(instr, operands)


def _why_not(instr: Instruction) -> str | None:
    if step := _STEPS.get(target_of(instr)):
        return step.why_not(instr)
    target = TARGETS.get(target_of(instr))
    return target.why_not(instr) if target else f'no rule for "{target_of(instr)}"'


def _device(instr: Instruction) -> DeviceChoice:
    reason = _why_not(instr)
    if reason:
        return NoDevice(reason)
    if step := _STEPS.get(target_of(instr)):
        return OwnKernel(step.form)
    return TARGETS[target_of(instr)].device(instr)


def takes_in(instr: Instruction) -> bool:
    """Tell whether a call's kernel may compute what makes its operands: it reads each once."""
    if instr.opcode == "custom-call" and (step := _STEPS.get(target_of(instr))):
        return step.takes_in(instr)
    return factors_block(instr) or factors_panel(instr)


def less_workspace(instr: Instruction) -> Instruction:
    """Return a custom call without the workspace in its result: memory that means nothing."""
    target = TARGETS.get(target_of(instr))
    return target.less_workspace(instr) if target and target.why_not(instr) is None else instr


CUSTOM_CALL = (
    OpSpec(
        "custom-call",
        (0, None),
        _infer,
        _run,
        frozenset(
            {
                "api_version",
                "called_computations",
                "custom_call_has_side_effect",
                "custom_call_schedule",
                "custom_call_target",
                "dim_labels",
                "batch_group_count",
                "feature_group_count",
                "literal",
                "operand_layout_constraints",
                "operand_precision",
                "output_to_operand_aliasing",
                "padding_type",
                "schedule",
                "to_apply",
                "window",
            }
        ),
        required=frozenset({"custom_call_target"}),
        why_not=_why_not,
        device=ByInstruction(_device),
    ),
)
