"""Which rule follows sizes through an instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from hlo2graph.hlo import Instruction
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_target import target_of
from hlo2graph.passes.sizes import (
    calls,
    folding,
    indexing,
    normalizing,
    ordering,
    reshaping,
    shaping,
)
from hlo2graph.passes.sizes.body import Body
from hlo2graph.passes.sizes.elementwise import elementwise
from hlo2graph.passes.sizes.value import Value

Rule: TypeAlias = Callable[[Body, Instruction, Sequence[Value]], Value]

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{opcode: elementwise for opcode, spec in OPS.items() if spec.elementwise},
        "add-dependency": calls.passed,
        "all-reduce": calls.each,
        "batch-norm-grad": normalizing.gradient,
        "batch-norm-inference": calls.passed,
        "batch-norm-training": normalizing.training,
        "bitcast": shaping.same_dims,
        "bitcast-convert": shaping.bitcast_convert,
        "broadcast": shaping.broadcast,
        "collective-broadcast": calls.each,
        "collective-permute": calls.each,
        "concatenate": shaping.concatenate,
        "convolution": folding.convolution,
        "custom-call": calls.custom_call,
        "domain": calls.passed,
        "dot": folding.dot,
        "dynamic-reshape": reshaping.dynamic_reshape,
        "dynamic-slice": indexing.dynamic_slice,
        "dynamic-update-slice": indexing.dynamic_update_slice,
        "gather": indexing.gather,
        "get-dimension-size": shaping.get_size,
        "get-tuple-element": calls.take_element,
        "map": elementwise,
        "opt-barrier": calls.passed,
        "pad": shaping.pad,
        "reduce": folding.reduce,
        "reduce-window": folding.reduce_window,
        "reshape": reshaping.reshape,
        "reverse": shaping.reverse,
        "scatter": indexing.scatter,
        "select-and-scatter": folding.select_and_scatter,
        "set-dimension-size": shaping.set_size,
        "slice": shaping.cut,
        "sort": ordering.sort,
        "topk": ordering.topk,
        "transpose": shaping.transpose,
        "tuple": calls.make_tuple,
    }
)
CALLS: Mapping[str, Callable[[Body, Instruction, Sequence[Value], calls.Follow], Value]] = (
    MappingProxyType(
        {
            "call": calls.call,
            "conditional": calls.branch,
            "fusion": calls.call,
            "while": calls.loop,
        }
    )
)
OF_TUPLES = frozenset({"add-dependency", "domain", "get-tuple-element", "opt-barrier", "tuple"})
"""Opcodes whose operands may be tuples."""

_ABOUT_SIZES = frozenset({"dynamic-reshape", "set-dimension-size"})
CALLS_ABOUT_SIZES = frozenset({"PadToStatic", "SliceToDynamic"})


def is_about_sizes(instr: Instruction) -> bool:
    """Tell whether an instruction gives sizes, or takes them away, whatever its operands have."""
    if instr.opcode == "custom-call":
        return target_of(instr) in CALLS_ABOUT_SIZES
    return instr.opcode in _ABOUT_SIZES
