"""LAPACK routines that JAX calls on the CPU for linear algebra: `lapack_spotrf_ffi` and others.

The letter after `lapack_` is the element type; matrices are the last two dimensions. Options come
as characters in backend_config (`{uplo = 76 : ui8}` is 'L'). Each routine overwrites its operands,
so results start with what became of them; where LAPACK leaves rubbish, the operand stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, Instruction, Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops import custom_lapack_routines as routine
from hlo2graph.ops.custom_target import (
    Target,
    as_result,
    as_written,
    integer_config,
    on_device,
    result_leaves,
    same_leaf,
)
from hlo2graph.ops.device import NoDevice
from hlo2graph.ops.expect import as_arrays, host_arrays, require
from hlo2graph.ops.spec import Array, HostValue

Options: TypeAlias = Mapping[str, str]
Results: TypeAlias = Callable[[Sequence[Shape], Options], "tuple[Shape, ...] | None"]

_TYPES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}


@dataclass(frozen=True, slots=True)
class Routine:
    """One LAPACK routine.

    ranks: the rank of each operand less the batch dimensions.
    results: the result shapes, or None if the operands do not fit together.
    run: the results of one problem without batch dimensions.
    options: the characters that each option may have.
    """

    ranks: tuple[int, ...]
    results: Results
    run: Callable[[Sequence[Array], Options], tuple[Array, ...]]
    options: Mapping[str, str]
    letters: str = "sdcz"


def _square(shape: Shape) -> bool:
    return shape.dims[-1] == shape.dims[-2]


def _batch(shape: Shape, *dims: int, rank: int = 2) -> Shape:
    """Return the shape with other dimensions after the batch dimensions."""
    return Shape(shape.dtype, (*shape.dims[: shape.rank - rank], *dims))


def _info(shape: Shape) -> Shape:
    return Shape(S32, shape.dims[:-2])


def _real(shape: Shape) -> Shape:
    bits = shape.dtype.bits // 2 if shape.dtype.is_complex else shape.dtype.bits
    return Shape(DTYPES[f"f{bits}"], shape.dims)


def _complex(shape: Shape) -> Shape:
    bits = shape.dtype.bits if shape.dtype.is_complex else shape.dtype.bits * 2
    return Shape(DTYPES[f"c{bits}"], shape.dims)


def _potrf(given: Sequence[Shape], _: Options) -> tuple[Shape, ...] | None:
    (a,) = given
    return (a, _info(a)) if _square(a) else None


def _getrf(given: Sequence[Shape], _: Options) -> tuple[Shape, ...] | None:
    (a,) = given
    pivots = Shape(S32, _batch(a, min(a.dims[-2:])).dims)
    return a, pivots, _info(a)


def _geqrf(given: Sequence[Shape], _: Options) -> tuple[Shape, ...] | None:
    (a,) = given
    return a, _batch(a, min(a.dims[-2:]))


def _orgqr(given: Sequence[Shape], _: Options) -> tuple[Shape, ...] | None:
    a, tau = given
    rows, columns = a.dims[-2:]
    return (a,) if rows >= columns >= tau.dims[-1] else None


def _trsm(given: Sequence[Shape], options: Options) -> tuple[Shape, ...] | None:
    a, b = given
    shared = b.dims[-2 if options["side"] == "L" else -1]
    return (b,) if _square(a) and shared == a.dims[-1] else None


def _syevd(given: Sequence[Shape], _: Options) -> tuple[Shape, ...] | None:
    (a,) = given
    return (a, _real(_batch(a, a.dims[-1])), _info(a)) if _square(a) else None


def _gesdd(given: Sequence[Shape], options: Options) -> tuple[Shape, ...] | None:
    (a,) = given
    rows, columns = a.dims[-2:]
    least = min(rows, columns)
    left, right = (least, least) if options["mode"] == "S" else (rows, columns)
    u, vt = _batch(a, rows, left), _batch(a, right, columns)
    return a, _real(_batch(a, least)), u, vt, _info(a)


def _geev(given: Sequence[Shape], _: Options) -> tuple[Shape, ...] | None:
    (a,) = given
    values, vectors = _batch(a, a.dims[-1]), _complex(a)
    split = (values,) if a.dtype.is_complex else (values, values)
    return (*split, vectors, vectors, _info(a)) if _square(a) else None


def _gtsv(given: Sequence[Shape], _: Options) -> tuple[Shape, ...] | None:
    *diagonals, b = given
    same = all(d.dims == (*b.dims[:-2], b.dims[-2]) for d in diagonals)
    return (*diagonals, b, _info(b)) if same else None


_UPLO, _MODE = {"uplo": "LU"}, {"mode": "SAN"}
_ROUTINES = {
    "potrf": Routine((2,), _potrf, routine.potrf, _UPLO),
    "getrf": Routine((2,), _getrf, routine.getrf, {}),
    "geqrf": Routine((2,), _geqrf, routine.geqrf, {}),
    "orgqr": Routine((2, 1), _orgqr, routine.orgqr, {}, "sd"),
    "ungqr": Routine((2, 1), _orgqr, routine.orgqr, {}, "cz"),
    "trsm": Routine(
        (2, 2), _trsm, routine.trsm, {"diag": "NU", "side": "LR", "trans_x": "NTC", **_UPLO}
    ),
    "syevd": Routine((2,), _syevd, routine.syevd, {"mode": "VN", **_UPLO}, "sd"),
    "heevd": Routine((2,), _syevd, routine.syevd, {"mode": "VN", **_UPLO}, "cz"),
    "gesdd": Routine((2,), _gesdd, routine.gesdd, _MODE),
    "gesvd": Routine((2,), _gesdd, routine.gesdd, _MODE),
    "geev": Routine((2,), _geev, routine.geev, {"compute_left": "N", "compute_right": "NV"}),
    "gtsv": Routine((1, 1, 1, 2), _gtsv, routine.gtsv, {}),
}


def _triangular_solve(instr: Instruction) -> Instruction:
    """Return a call of trsm as HLO's own operation."""
    held = _options(instr, _ROUTINES["trsm"])
    assert not isinstance(held, str)
    transposed = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    attrs = {k: v for k, v in instr.attrs.items() if k in ("control-predecessors", "metadata")}
    attrs |= {
        "left_side": held["side"] == "L",
        "lower": held["uplo"] == "L",
        "transpose_a": transposed[held["trans_x"]],
        "unit_diagonal": held["diag"] == "U",
    }
    return replace(instr, opcode="triangular-solve", shape=result_leaves(instr)[0], attrs=attrs)


def _options(instr: Instruction, known: Routine) -> Options | str:
    """Return the options as characters, or what is wrong with them."""
    config, found = integer_config(instr), {}
    for name, allowed in known.options.items():
        number = config.get(name, -1)
        found[name] = chr(number) if 0 < number < 128 else ""
        if not found[name] or found[name] not in allowed:
            return f"needs {name} in its backend_config, the code of one of {', '.join(allowed)}"
    return found


def _target(letter: str, known: Routine) -> Target:
    dtype = DTYPES[_TYPES[letter]]

    def options(instr: Instruction) -> Options:
        held = _options(instr, known)
        assert not isinstance(held, str)
        return held

    def why_not(instr: Instruction) -> str | None:
        held = _options(instr, known)
        return held if isinstance(held, str) else None

    def check(instr: Instruction, operands: Sequence[AnyShape]) -> None:
        shapes = as_arrays(instr, operands)
        count = len(known.ranks)
        require(instr, len(shapes) == count, f"takes {count} operands, got {len(shapes)}")
        batch = shapes[0].dims[: max(shapes[0].rank - known.ranks[0], 0)]
        for shape, rank in zip(shapes, known.ranks, strict=True):
            fits = shape.rank == len(batch) + rank and shape.dims[: len(batch)] == batch
            require(instr, fits and shape.dtype is dtype, f"takes {dtype} matrices, got {shape}")
        results, leaves = known.results(shapes, options(instr)), result_leaves(instr)
        if results is None:
            sizes = ", ".join(map(str, shapes))
            require(instr, False, f"takes operands that fit together, got {sizes}")
            return
        require(instr, len(results) == len(leaves), f"gives {len(results)} arrays")
        for number, wanted in enumerate(results):
            same_leaf(instr, number, wanted)

    def host(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
        arrays, leaves = host_arrays(operands), result_leaves(instr)
        batch = arrays[0].shape[: arrays[0].ndim - known.ranks[0]]
        results = [np.zeros(leaf.dims, leaf.dtype.numpy) for leaf in leaves]
        held = options(instr)
        for at in np.ndindex(batch):
            for result, part in zip(results, known.run([a[at] for a in arrays], held), strict=True):
                result[at] = part
        return as_result(instr, results)

    reason = NoDevice("LAPACK is a library of the CPU: it runs on the host only")
    plain = _triangular_solve if known is _ROUTINES["trsm"] else as_written
    return Target(check, host, on_device(reason), why_not, plain)


LAPACK = {
    f"lapack_{letter}{name}_ffi": _target(letter, known)
    for name, known in _ROUTINES.items()
    for letter in known.letters
}
