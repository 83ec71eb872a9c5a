"""What an instruction must have for its text to be read: attributes, a number of operands."""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.hlo import Attribute
from hlo2graph.ops import OPS

_NO: frozenset[str] = frozenset()
_ANY_NUMBER = frozenset({"constant", "parameter", "ragged-all-to-all", "rng-bit-generator"})
_REQUIRED = {opcode: spec.required for opcode, spec in OPS.items()}
REQUIRED = {
    **{f"{opcode}-start": names for opcode, names in _REQUIRED.items()},
    **_REQUIRED,
}
ARITY = {
    opcode: spec.arity
    for opcode, spec in OPS.items()
    if isinstance(spec.arity, int) and opcode not in _ANY_NUMBER
}


def missing(opcode: str, attrs: Mapping[str, Attribute], operands: int) -> str | None:
    """Say what is missing from an instruction with these attributes, or None."""
    wanted = ARITY.get(opcode, operands)
    if wanted != operands:
        return f"{opcode} takes {wanted} operand{'s' * (wanted != 1)}, got {operands}"
    lacking = REQUIRED.get(opcode, _NO).difference(attrs)
    if lacking:
        return f"{opcode} needs the attribute {min(lacking)}"
    if (
        attrs.get("use_global_device_ids") is True
        and "channel_id" not in attrs
        and "mode" not in attrs
        and not opcode.startswith("all-gather")
    ):
        return f"{opcode} has use_global_device_ids, and so needs a channel_id"
    return None
