"""`hlo2graph$top_places`: a topk of candidates that know where they stood, which passes write.

Given values and places of the same sizes, it gives the first k of each row of values, as topk does,
and the places there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import AnyShape, Attribute, Instruction, Shape, TupleShape
from hlo2graph.hlo.attributes import Raw
from hlo2graph.ops.custom_target import json_config
from hlo2graph.ops.expect import as_arrays, host_arrays, require
from hlo2graph.ops.reduction import as_result
from hlo2graph.ops.sorting import top_k
from hlo2graph.ops.spec import Computations, Evaluator, HostValue

TOP_PLACES = "hlo2graph$top_places"


def top_places_attrs(k: int, *, largest: bool) -> dict[str, Attribute]:
    """Return the attributes of a call."""
    config = f'{{"top_places": {{"k": {k}, "largest": {str(largest).lower()}}}}}'
    return {"custom_call_target": TOP_PLACES, "backend_config": Raw(config)}


def why_not_top_places(instr: Instruction) -> str | None:
    """Return why a call cannot run, or None."""
    return None if _config(instr) else "its backend_config must say k and largest"


def infer_top_places(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    """Return the shapes of the values and places."""
    config = _config(instr)
    if config is None:
        return instr.shape
    require(instr, len(operands) == 2, f"takes values and places, got {len(operands)} operands")
    values, places = as_arrays(instr, operands)
    alike = values.dims == places.dims and values.rank > 0 and not values.dtype.is_complex
    require(instr, alike and places.dtype.is_integer, "takes real values, and as many places")
    k, length = config[0], values.dims[-1]
    require(instr, 0 <= k <= length, f"k={k} is out of range for rows of {length}")
    dims = (*values.dims[:-1], k)
    return TupleShape((Shape(values.dtype, dims), Shape(places.dtype, dims)))


def top_places(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    """Return the first values of each row, and their places."""
    config, (values, places) = _config(instr), host_arrays(operands)
    assert config is not None
    found, at = top_k(values, *config)
    return as_result(instr, [found, np.take_along_axis(places, at, axis=-1)])


def takes_largest(instr: Instruction) -> bool:
    """Tell whether a topk, or such a call, wants the largest: the least otherwise."""
    if instr.opcode == "topk":
        return instr.attrs.get("largest", True) is True
    config = _config(instr)
    return config is None or config[1]


def _is_top_places(instr: Instruction) -> bool:
    """Tell whether an instruction is such a call."""
    return instr.attrs.get("custom_call_target") == TOP_PLACES


def _config(instr: Instruction) -> tuple[int, bool] | None:
    held = (json_config(instr, "top_places") or {}) if _is_top_places(instr) else {}
    k, largest = held.get("k"), held.get("largest")
    return (k, largest) if type(k) is int and isinstance(largest, bool) else None
