"""What an opcode wants of its operands for its text to be read: how many, of which shapes.

All else that operands must be is for the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from hlo2graph.frontend.results import RESULTS, result_fault
from hlo2graph.hlo import (
    AnyShape,
    Attribute,
    Computation,
    Instruction,
    Shape,
    TupleShape,
)

Computations: TypeAlias = Mapping[str, Computation]
_Rule: TypeAlias = Callable[[Instruction, Sequence[Instruction], Computations], str | None]
NEEDS_SHAPE = frozenset(
    {
        *("all-gather", "all-gather-start", "all-gather-done", "all-reduce", "all-reduce-start"),
        *("all-reduce-done", "all-to-all", "async-start", "async-update", "async-done"),
        *("bitcast", "bitcast-convert", "collective-broadcast", "collective-permute"),
        *("collective-permute-start", "collective-permute-done", "constant", "convert"),
        *("copy-start", "copy-done", "custom-call", "dynamic-reshape", "dynamic-slice"),
        *("dynamic-update-slice", "fusion", "infeed", "iota", "outfeed", "parameter"),
        *("opt-barrier", "ragged-all-to-all", "recv", "recv-done", "reduce-precision"),
        "reduce-scatter",
        *("reshape", "rng", "rng-bit-generator", "rng-get-and-update-state", "send"),
        *("send-done", "slice", "stochastic-convert"),
    }
)  # XLA reads none of these without a shape before it


def structure_fault(
    instr: Instruction, operands: Sequence[Instruction], computations: Computations
) -> str | None:
    """Say what keeps an instruction with these operands from being read, or None."""
    replication = instr.attrs.get("parameter_replication")
    if replication is not None:
        if instr.opcode != "parameter":
            return f"{instr.opcode} has no parameter_replication, which parameters have"
        count = str(replication).count("true") + str(replication).count("false")
        if count != instr.shape.leaf_count:
            leaves = instr.shape.leaf_count
            return f"parameter_replication has {count} values for {leaves} arrays"
    if instr.opcode in RESULTS:
        return result_fault(instr, [operand.shape for operand in operands])
    rule = _RULES.get(instr.opcode)
    return rule(instr, operands, computations) if rule else None


def has_rule(opcode: str, attrs: Mapping[str, Attribute]) -> bool:
    """Return whether `structure_fault` can find anything."""
    return opcode in _RULES or opcode in RESULTS or "parameter_replication" in attrs


def _count(opcode: str, wanted: str, found: int) -> str:
    return f"{opcode} takes {wanted}, got {found}"


def _conditional(
    instr: Instruction, operands: Sequence[Instruction], _: Computations
) -> str | None:
    pair = [name for name in ("true_computation", "false_computation") if name in instr.attrs]
    branches = instr.attrs.get("branch_computations")
    if branches is not None and pair:
        return f"conditional has branch_computations, and so no {pair[0]}"
    if not branches and len(pair) < 2:
        return "conditional needs branch_computations, or true_computation and false_computation"
    wanted = "pred" if pair else "s32"
    selector = operands[0].shape if operands else None
    if not isinstance(selector, Shape) or selector.dims or selector.dtype.name != wanted:
        found = f", got {selector}" if selector else ""
        return f"conditional expects {wanted}[] as the selector{found}"
    count = len(branches) if isinstance(branches, tuple) else 2
    if len(operands) != count + 1:
        return f"conditional has {count} branches, but {len(operands) - 1} arguments"
    return None


def _some_dimension(instr: Instruction, _: Sequence[Instruction], __: Computations) -> str | None:
    return None if instr.attrs["dimensions"] else f"{instr.opcode} needs a dimension, got none"


def _even(instr: Instruction, operands: Sequence[Instruction], _: Computations) -> str | None:
    if len(operands) % 2:
        return _count(instr.opcode, "as many initial values as arrays", len(operands))
    return None


def _odd(instr: Instruction, operands: Sequence[Instruction], _: Computations) -> str | None:
    if len(operands) % 2 == 0:
        return _count(instr.opcode, "arrays, indices and as many updates", len(operands))
    return None


def _one_dimension(instr: Instruction, _: Sequence[Instruction], __: Computations) -> str | None:
    dimensions = instr.attrs.get("dimensions")
    if isinstance(dimensions, tuple) and len(dimensions) != 1:
        return (
            f"{instr.opcode} needs one dimension in the attribute dimensions, got {len(dimensions)}"
        )
    return None


def _starts(before: int) -> _Rule:
    """Return the rule that `before` operands are followed by a start for each dimension."""

    def rule(instr: Instruction, operands: Sequence[Instruction], _: Computations) -> str | None:
        found = len(operands)
        rank = _rank(operands[0].shape) if operands else 0
        is_vector = found == before + 1 and _rank(operands[before].shape) == 1
        if found < before or not (is_vector or found == before + rank):
            return _count(instr.opcode, f"{before + rank} operands, or {before + 1}", found)
        return None

    return rule


def _rank(shape: AnyShape) -> int:
    return shape.rank if isinstance(shape, Shape) else 0


def _at_least(count: int, rule: _Rule | None = None) -> _Rule:
    def checked(
        instr: Instruction, operands: Sequence[Instruction], known: Computations
    ) -> str | None:
        if len(operands) < count:
            plural = "s" * (count > 1)
            return _count(instr.opcode, f"{count} operand{plural} or more", len(operands))
        return rule(instr, operands, known) if rule else None

    return checked


def _permute(instr: Instruction, operands: Sequence[Instruction], _: Computations) -> str | None:
    sizes = instr.attrs.get("slice_sizes")
    if isinstance(sizes, tuple) and sizes:
        return f"{instr.opcode} needs a list of slice_sizes for each pair, such as {{{{1,2}}}}"
    if sizes is not None and len(operands) != 4:
        return _count(f"{instr.opcode} with slice_sizes", "4 operands", len(operands))
    return None


def _channel(instr: Instruction, operands: Sequence[Instruction], _: Computations) -> str | None:
    begun = operands[0]
    if instr.opcode == "recv-done" and not isinstance(begun.shape, TupleShape):
        return f"recv-done takes what recv gave, not {begun.shape.without_layout_text()}"
    has_channel = begun.opcode in ("send", "recv")
    if has_channel and begun.attrs.get("channel_id") != instr.attrs.get("channel_id"):
        return f"{instr.opcode} must have the channel_id of {begun.name}"
    return None


def _scan(
    instr: Instruction, operands: Sequence[Instruction], computations: Computations
) -> str | None:
    wanted = len(computations[str(instr.attrs["to_apply"])].parameters)
    if wanted != len(operands):
        return _count("scan", f"{wanted} operands, as many as to_apply", len(operands))
    carries = instr.attrs["num_carries"]
    if isinstance(carries, int) and not 0 <= carries <= len(operands):
        return f"scan has {len(operands)} operands, and so no {carries} carries"
    return _one_dimension(instr, operands, computations)


def _async_start(instr: Instruction, _: Sequence[Instruction], __: Computations) -> str | None:
    parts = instr.shape.parts if isinstance(instr.shape, TupleShape) else ()
    if len(parts) < 2 or not isinstance(parts[0], TupleShape):
        return f"{instr.opcode} needs a shape ((operands), result, ...), got {instr.shape}"
    return None


def _async_next(instr: Instruction, operands: Sequence[Instruction], _: Computations) -> str | None:
    begun = operands[0]
    if begun.opcode not in ("async-start", "async-update"):
        return f"{instr.opcode} needs one operand, an async op that was started"
    if instr.opcode == "async-update" and not instr.shape.compatible(begun.shape):
        return f"{instr.opcode} has the shape of {begun.name}, {begun.shape}"
    return None


def _broadcast(instr: Instruction, operands: Sequence[Instruction], _: Computations) -> str | None:
    if "dimensions" not in instr.attrs and _rank(operands[0].shape):
        return "broadcast needs the attribute dimensions"
    return None


def _constraints(
    instr: Instruction, operands: Sequence[Instruction], _: Computations
) -> str | None:
    held = instr.attrs.get("operand_layout_constraints")
    if not isinstance(held, tuple):
        return None
    if len(held) != len(operands):
        return f"operand_layout_constraints has {len(held)} shapes for {len(operands)} operands"
    for said, operand in zip(held, operands, strict=True):
        if isinstance(said, Shape | TupleShape) and not said.compatible(operand.shape):
            return f"operand_layout_constraints says {said} of {operand.name}, {operand.shape}"
    return None


def _algorithm(instr: Instruction, _: Sequence[Instruction], __: Computations) -> str | None:
    algorithm = str(instr.attrs.get("algorithm", ""))
    if algorithm and algorithm.startswith("rng") is not instr.opcode.startswith("rng"):
        return f"{instr.opcode} has no algorithm {algorithm}"
    return None


_RULES: dict[str, _Rule] = {
    "all-gather": _some_dimension,
    "all-gather-start": _some_dimension,
    "all-to-all": _one_dimension,
    "async-done": _async_next,
    "async-start": _async_start,
    "async-update": _async_next,
    "broadcast": _broadcast,
    "collective-permute": _permute,
    "collective-permute-start": _permute,
    "concatenate": _one_dimension,
    "conditional": _conditional,
    "custom-call": _constraints,
    "dot": _at_least(2, _algorithm),
    "dynamic-slice": _starts(1),
    "dynamic-update-slice": _starts(2),
    "get-dimension-size": _some_dimension,
    "ragged-all-to-all": _one_dimension,
    "recv-done": _channel,
    "reduce": _even,
    "reduce-scatter": _some_dimension,
    "reduce-window": _even,
    "rng-bit-generator": _at_least(1, _algorithm),
    "scaled-dot": _algorithm,
    "scan": _scan,
    "scatter": _odd,
    "send-done": _channel,
    "set-dimension-size": _some_dimension,
    "sort": _one_dimension,
}
