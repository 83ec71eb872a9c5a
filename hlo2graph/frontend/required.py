"""What an instruction must have for its text to be read: attributes, a number of operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hlo2graph.hlo import Attribute
from hlo2graph.ops import OPS

_NO: frozenset[str] = frozenset()
_REQUIRED = {opcode: spec.required for opcode, spec in OPS.items()}
REQUIRED = {
    **{f"{opcode}-start": names for opcode, names in _REQUIRED.items()},
    **_REQUIRED,
}
ARITY = {
    opcode: spec.arity
    for opcode, spec in OPS.items()
    if isinstance(spec.arity, int) and opcode not in ("parameter", "constant")
}


def missing(opcode: str, attrs: Mapping[str, Attribute], operands: int) -> str | None:
    """Say what is missing from an instruction with these attributes, or None."""
    wanted = ARITY.get(opcode, operands)
    if wanted != operands:
        return f"{opcode} takes {wanted} operand{'s' * (wanted != 1)}, got {operands}"
    lacking = REQUIRED.get(opcode, _NO).difference(attrs)
    if lacking:
        return f"{opcode} needs the attribute {min(lacking)}"
    if opcode == "conditional":
        return _missing_branches(attrs)
    algorithm = attrs.get("algorithm")
    if algorithm and str(algorithm).startswith("rng") is not opcode.startswith("rng"):
        return f"{opcode} has no algorithm {algorithm}"
    if attrs.get("use_global_device_ids") is True and "channel_id" not in attrs:
        return f"{opcode} has use_global_device_ids, and so needs a channel_id"
    return None


def _missing_branches(names: Collection[str]) -> str | None:
    pair = [name for name in ("true_computation", "false_computation") if name in names]
    if "branch_computations" in names:
        return f"conditional has branch_computations, and so no {pair[0]}" if pair else None
    if len(pair) == 2:
        return None
    return "conditional needs branch_computations, or true_computation and false_computation"
