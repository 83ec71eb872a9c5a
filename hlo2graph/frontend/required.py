"""What an instruction must have for its text to be read: attributes, a number of operands."""

from __future__ import annotations

from collections.abc import Collection

from hlo2graph.ops import OPS

_NO: frozenset[str] = frozenset()
_ATTRS = {
    "all-gather": "dimensions",
    "all-gather-start": "dimensions",
    "all-reduce": "to_apply",
    "all-reduce-start": "to_apply",
    "async-start": "calls",
    "batch-norm-grad": "epsilon feature_index",
    "batch-norm-inference": "epsilon feature_index",
    "batch-norm-training": "epsilon feature_index",
    "call": "to_apply",
    "collective-permute": "source_target_pairs",
    "collective-permute-start": "source_target_pairs",
    "compare": "direction",
    "concatenate": "dimensions",
    "convolution": "dim_labels",
    "custom-call": "custom_call_target",
    "domain": "domain",
    "dynamic-slice": "dynamic_slice_sizes",
    "fft": "fft_type fft_length",
    "fusion": "kind calls",
    "gather": "offset_dims collapsed_slice_dims start_index_map index_vector_dim slice_sizes",
    "get-dimension-size": "dimensions",
    "get-tuple-element": "index",
    "iota": "iota_dimension",
    "map": "to_apply",
    "pad": "padding",
    "reduce": "dimensions to_apply",
    "reduce-precision": "exponent_bits mantissa_bits",
    "reduce-scatter": "dimensions to_apply",
    "reduce-window": "to_apply",
    "reverse": "dimensions",
    "rng": "distribution",
    "rng-bit-generator": "algorithm",
    "rng-get-and-update-state": "delta",
    "scatter": "update_window_dims inserted_window_dims scatter_dims_to_operand_dims "
    "index_vector_dim to_apply",
    "select-and-scatter": "select scatter",
    "set-dimension-size": "dimensions",
    "slice": "slice",
    "sort": "dimensions to_apply",
    "topk": "k",
    "transpose": "dimensions",
    "while": "condition body",
}  # as XLA's parser has it; what else is needed follows from the shapes, and is verified
_REQUIRED = {opcode: frozenset(names.split()) for opcode, names in _ATTRS.items()}
REQUIRED = {
    **{f"{opcode}-start": names for opcode, names in _REQUIRED.items()},
    **_REQUIRED,
}
ARITY = {
    opcode: spec.arity
    for opcode, spec in OPS.items()
    if isinstance(spec.arity, int) and opcode not in ("parameter", "constant")
}


def missing(opcode: str, names: Collection[str], operands: int) -> str | None:
    """Say what is missing from an instruction with these attributes, or None."""
    wanted = ARITY.get(opcode, operands)
    if wanted != operands:
        return f"{opcode} takes {wanted} operand{'s' * (wanted != 1)}, got {operands}"
    lacking = REQUIRED.get(opcode, _NO).difference(names)
    if lacking:
        return f"{opcode} needs the attribute {min(lacking)}"
    if opcode == "conditional":
        return _missing_branches(names)
    return None


def _missing_branches(names: Collection[str]) -> str | None:
    pair = [name for name in ("true_computation", "false_computation") if name in names]
    if "branch_computations" in names:
        return f"conditional has branch_computations, and so no {pair[0]}" if pair else None
    if len(pair) == 2:
        return None
    return "conditional needs branch_computations, or true_computation and false_computation"
