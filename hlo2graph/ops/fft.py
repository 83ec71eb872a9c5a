"""fft: complex and real transforms over the last one to three dimensions.

Follows the OpenXLA section Fft.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, Instruction, Shape
from hlo2graph.ops.device_fft import fft
from hlo2graph.ops.expect import as_arrays, braced, host_arrays, integers, refuse, require
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec

_COMPLEX_OF = {"f32": "c64", "f64": "c128"}
_REAL_OF = {"c64": "f32", "c128": "f64"}
_TAKES = {"FFT": _REAL_OF, "IFFT": _REAL_OF, "RFFT": _COMPLEX_OF, "IRFFT": _REAL_OF}


def _infer(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> AnyShape:
    (array,) = as_arrays(instr, operands)
    kind = str(instr.attrs.get("fft_type"))
    if kind not in _TAKES:
        refuse(instr, f"fft_type must be one of {', '.join(_TAKES)}, got {kind}")
    lengths = integers(instr, "fft_length")
    require(instr, 1 <= len(lengths) <= 3, f"transforms 1 to 3 dimensions, got {len(lengths)}")
    require(
        instr,
        len(lengths) <= array.rank,
        f"fft_length={braced(lengths)} has more dimensions than {array}",
    )
    accepted = _TAKES[kind]
    require(
        instr,
        array.dtype.name in accepted,
        f"{kind} takes {' or '.join(accepted)}, got {array}",
    )
    half = lengths[-1] // 2 + 1 if lengths[-1] else 0
    given = (*lengths[:-1], half) if kind == "IRFFT" else lengths
    found = array.dims[array.rank - len(lengths) :]
    require(
        instr,
        found == given,
        f"{kind} of fft_length={braced(lengths)} takes last dimensions {braced(given)}, "
        f"got {array}",
    )
    lead = array.dims[: array.rank - 1]
    match kind:
        case "RFFT":
            return Shape(DTYPES[_COMPLEX_OF[array.dtype.name]], (*lead, half))
        case "IRFFT":
            return Shape(DTYPES[_REAL_OF[array.dtype.name]], (*lead, lengths[-1]))
        case _:
            return Shape(array.dtype, array.dims)


def _run(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> HostValue:
    (array,) = host_arrays(operands)
    assert isinstance(instr.shape, Shape)
    if not instr.shape.elements or not array.size:
        return np.zeros(instr.shape.dims, instr.shape.dtype.numpy)
    lengths = integers(instr, "fft_length", ())
    axes = tuple(range(array.ndim - len(lengths), array.ndim))
    result: Array
    match instr.attrs["fft_type"]:
        case "FFT":
            result = np.fft.fftn(array, lengths, axes)
        case "IFFT":
            result = np.fft.ifftn(array, lengths, axes)
        case "RFFT":
            result = np.fft.rfftn(array, lengths, axes)
        case _:
            result = np.fft.irfftn(array, lengths, axes)
    return np.ascontiguousarray(result, dtype=instr.shape.dtype.numpy)


FFT = (
    OpSpec(
        "fft",
        1,
        _infer,
        _run,
        frozenset({"fft_type", "fft_length"}),
        required=frozenset({"fft_length", "fft_type"}),
        device=fft,
    ),
)
