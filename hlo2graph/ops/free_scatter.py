"""Which scatters may take updates in any order, or apart, or in the order of what they update."""

from __future__ import annotations

from hlo2graph.hlo import DTYPES, Instruction, Shape
from hlo2graph.ops.expect import integers
from hlo2graph.ops.folding import UFUNCS
from hlo2graph.ops.scalar_region import binary_reducer
from hlo2graph.ops.spec import Computations

_ANY_ORDER = frozenset(UFUNCS)
_IN_PARTS = frozenset(DTYPES[name] for name in ("bf16", "f16", "f32", "f64"))
_OF_FLOATS = frozenset({"maximum", "minimum"})  # which have one NaN, and zeros in order
_WORDS = (32, 64)  # bits of what a device changes at once


def folds_freely(instr: Instruction, computations: Computations) -> bool:
    """Tell whether updates of one element give the same bits in any order, or have it alone."""
    if instr.attrs.get("unique_indices") is True:
        return True
    if len(instr.operands) != 3 or not isinstance(instr.shape, Shape):
        return False
    dtype = instr.shape.dtype
    opcode = binary_reducer(computations, str(instr.attrs["to_apply"]))
    free = _ANY_ORDER if dtype.is_integer else _OF_FLOATS if dtype.is_float else ()
    return dtype.bits in _WORDS and opcode in free


def parts_opcode(instr: Instruction, computations: Computations) -> str | None:
    """Return what folds the updates, where some that follow each other may be folded apart.

    It is associative, but for rounding, and has a neutral element of the type.
    """
    if len(instr.operands) != 3 or not isinstance(instr.shape, Shape):
        return None
    dtype = instr.shape.dtype
    opcode = binary_reducer(computations, str(instr.attrs["to_apply"]))
    known = dtype.is_integer or dtype in _IN_PARTS
    return opcode if known and opcode in UFUNCS else None


def is_of_rows(instr: Instruction, operand: Shape, update: Shape) -> bool:
    """Tell whether index vectors name rows: windows lie wholly in one, or are single elements."""
    mapped = integers(instr, "scatter_dims_to_operand_dims", ())
    if integers(instr, "input_batching_dims", ()) or not mapped:
        return False
    dropped = integers(instr, "inserted_window_dims", ())
    kept = [d for d in range(operand.rank) if d not in dropped]
    sizes = [update.dims[d] for d in integers(instr, "update_window_dims", ())]
    return all(size == 1 for dim, size in zip(kept, sizes, strict=True) if dim in mapped)
