"""Linear algebra that JAX leaves to libraries: LAPACK's routines, and cuSOLVER's for the same.

`lapack_spotrf_ffi` names the element type by a letter; `cusolver_potrf_ffi` takes all types.
Matrices are the last two dimensions. Each routine overwrites its operands, so results start with
what became of them; where a routine leaves rubbish, the operand stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, DType, Instruction, Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops import custom_lapack_reflect as reflect
from hlo2graph.ops import custom_lapack_routines as routine
from hlo2graph.ops import custom_lapack_shapes as shapes
from hlo2graph.ops.custom_lapack_device import symmetric_product
from hlo2graph.ops.custom_lapack_jacobi import eigh
from hlo2graph.ops.custom_lapack_options import (
    Reader,
    characters,
    listed_options,
    solver_options,
)
from hlo2graph.ops.custom_lapack_schur import gees
from hlo2graph.ops.custom_target import (
    DeviceChoice,
    Target,
    as_result,
    as_written,
    result_leaves,
    same_leaf,
    target_of,
)
from hlo2graph.ops.device import NoDevice, OwnKernel
from hlo2graph.ops.expect import as_arrays, host_arrays, require
from hlo2graph.ops.linalg import largest_block, panel_columns
from hlo2graph.ops.spec import Array, HostValue

Options: TypeAlias = Mapping[str, str]

_TYPES = {"s": "f32", "d": "f64", "c": "c64", "z": "c128"}
SCALAR = -1  # an operand's rank: a scalar, whatever the batch


@dataclass(frozen=True, slots=True)
class Routine:
    """One routine.

    ranks: the rank of each operand less the batch dimensions; those of `integers` are s32.
    results: the result shapes, or None if the operands do not fit together.
    run: the results of one problem without batch dimensions.
    options: the characters, or words, that each option may have.
    most: the largest matrix that the device's kernel takes, None where there is no kernel.
    """

    ranks: tuple[int, ...]
    results: Callable[[Sequence[Shape], Options], tuple[Shape, ...] | None]
    run: Callable[[Sequence[Array], Options], tuple[Array, ...]]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    letters: str = "sdcz"
    integers: tuple[int, ...] = ()
    most: int | None = None


ANY_SIZE = 2**15
_UPLO, _MODE = {"uplo": ("L", "U")}, {"mode": ("S", "A", "N")}
_VECTORS = {"mode": ("V", "N"), **_UPLO}
_BOTH = {"left": ("true", "false"), "transpose": ("true", "false")}
_SIDES = {"compute_left": ("N", "V"), "compute_right": ("N", "V")}
_SOLVE = {"diag": ("N", "U"), "side": ("L", "R"), "trans_x": ("N", "T", "C"), **_UPLO}
_SCHUR = {"mode": ("V", "N"), "sort": ("N",)}
_SVD = Routine((2,), shapes.gesdd, routine.gesdd, _MODE, most=512)
# fmt: off
ROUTINES: Mapping[str, Routine] = MappingProxyType({
    "potrf": Routine((2,), shapes.potrf, routine.potrf, _UPLO, most=ANY_SIZE),
    "getrf": Routine((2,), shapes.getrf, routine.getrf, most=ANY_SIZE),
    "lu": Routine((2,), shapes.lu, routine.lu, letters="", most=ANY_SIZE),
    "geqrf": Routine((2,), shapes.geqrf, reflect.geqrf, most=ANY_SIZE),
    "geqp3": Routine((2, 1), shapes.geqp3, reflect.geqp3, integers=(1,), most=ANY_SIZE),
    "orgqr": Routine((2, 1), shapes.orgqr, reflect.orgqr, letters="sd", most=ANY_SIZE),
    "ungqr": Routine((2, 1), shapes.orgqr, reflect.orgqr, letters="cz", most=ANY_SIZE),
    "ormqr": Routine((2, 1, 2), shapes.ormqr, reflect.ormqr, _BOTH, "sd", most=2048),
    "unmqr": Routine((2, 1, 2), shapes.ormqr, reflect.ormqr, _BOTH, "cz", most=2048),
    "trsm": Routine((2, 2), shapes.trsm, routine.trsm, _SOLVE),
    "syevd": Routine((2,), shapes.syevd, routine.syevd, _VECTORS, "sd", most=512),
    "heevd": Routine((2,), shapes.syevd, routine.syevd, _VECTORS, "cz", most=512),
    "eigh": Routine((2,), shapes.eigh, eigh, letters="", most=512),
    "gesdd": _SVD,
    "gesvd": _SVD,
    "geev": Routine((2,), shapes.geev, routine.geev, _SIDES),
    "packed_geev": Routine((2,), shapes.packed_geev, routine.packed_geev, _SIDES, ""),
    "gees": Routine((2,), shapes.gees, gees, _SCHUR),
    "gehrd": Routine((2,), shapes.gehrd, reflect.gehrd, most=ANY_SIZE),
    "sytrd": Routine((2,), shapes.sytrd, reflect.sytrd, _UPLO, "sd", most=ANY_SIZE),
    "hetrd": Routine((2,), shapes.sytrd, reflect.sytrd, _UPLO, "cz", most=ANY_SIZE),
    "gtsv": Routine((1, 1, 1, 2), shapes.gtsv, routine.gtsv, most=ANY_SIZE),
    "gtsv2": Routine((1, 1, 1, 2), shapes.gtsv2, routine.gtsv2, letters="", most=512),
    "syrk": Routine(
        (2, 2, SCALAR, SCALAR), shapes.syrk, routine.syrk, {"transpose": ("true", "false")}, "",
        most=ANY_SIZE,
    ),
    "cholesky_update": Routine(
        (2, 1), shapes.cholesky_update, routine.cholesky_update, letters="", most=ANY_SIZE
    ),
})
# fmt: on
_LIBRARIES = {  # other names whose routine is called otherwise here
    "cusolver_gesvdj_ffi": "gesvd",
    "hipsolver_gesvdj_ffi": "gesvd",
    "cusolver_gesvdp_ffi": "gesvd",
    "cusolver_geev_ffi": "packed_geev",
    "cuhybrid_eig_real": "geev",
    "cuhybrid_eig_comp": "geev",
    "cuhybrid_geqp3": "geqp3",
    **dict.fromkeys(("cusparse_gtsv2_ffi", "hipsparse_gtsv2_ffi"), "gtsv2"),
    "cu_cholesky_update_ffi": "cholesky_update",
    "LuDecomposition": "lu",
    "Qr": "geqrf",  # these two are written out by XLA itself, for all its backends
    "ProductOfElementaryHouseholderReflectors": "orgqr",
}
_SOLVER = (
    *("getrf", "geqrf", "orgqr", "ormqr", "potrf"),
    *("syevd", "gesvd", "gesdd", "sytrd", "syrk"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """What a call's target and backend_config ask for."""

    name: str
    options: Options

    @property
    def routine(self) -> Routine:
        """The routine by its name."""
        return ROUTINES[self.name]


def lapack_call(instr: Instruction) -> Call | str:
    """Return the routine and options of a call, or what is wrong with the options."""
    name, read, _ = _NAMED[target_of(instr)]
    options = read(instr, ROUTINES[name].options)
    return options if isinstance(options, str) else Call(name, options)


def call_of(instr: Instruction) -> Call | None:
    """Return what an instruction asks for, if it is a call of a routine with right options."""
    if instr.opcode != "custom-call" or target_of(instr) not in _NAMED:
        return None
    call = lapack_call(instr)
    return call if isinstance(call, Call) else None


def factors_block(instr: Instruction) -> bool:
    """Tell whether an instruction is a potrf of matrices that a block keeps at hand."""
    shape = _factored(instr, "potrf")
    return shape is not None and shape.dims[-1] <= largest_block(shape.dtype)


def factors_panel(instr: Instruction) -> bool:
    """Tell whether an instruction factors, by LU or QR, what a block has in registers."""
    shape = _factored(instr, "getrf", "lu", "geqrf")
    return shape is not None and shape.dims[-1] <= panel_columns(shape.dtype, shape.dims[-2])


def _factored(instr: Instruction, *names: str) -> Shape | None:
    """Return the shape of what a call of one of these routines factors; None of other calls."""
    call, leaves = call_of(instr), result_leaves(instr)
    if call is None or call.name not in names or not leaves:
        return None
    return leaves[0] if leaves[0].elements else None


def routine_of(target: str) -> Routine | None:
    """Return the routine that a target names."""
    return ROUTINES[_NAMED[target][0]] if target in _NAMED else None


def _known(instr: Instruction) -> Call:
    call = lapack_call(instr)
    assert isinstance(call, Call)
    return call


def _triangular_solve(instr: Instruction) -> Instruction:
    """Return a call of trsm as HLO's own operation."""
    held = _known(instr).options
    transposed = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    attrs = {k: v for k, v in instr.attrs.items() if k in ("control-predecessors", "metadata")}
    attrs |= {
        "left_side": held["side"] == "L",
        "lower": held["uplo"] == "L",
        "transpose_a": transposed[held["trans_x"]],
        "unit_diagonal": held["diag"] == "U",
    }
    return replace(instr, opcode="triangular-solve", shape=result_leaves(instr)[0], attrs=attrs)


def _why_not(instr: Instruction) -> str | None:
    call = lapack_call(instr)
    return call if isinstance(call, str) else None


def _check(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    call, given = _known(instr), as_arrays(instr, operands)
    known, count = call.routine, len(call.routine.ranks)
    require(instr, len(given) == count, f"takes {count} operands, got {len(given)}")
    allowed = _NAMED[target_of(instr)][2]
    dtype = given[0].dtype
    wanted = ", ".join(map(str, allowed))
    require(instr, dtype in allowed, f"takes {wanted} matrices, got {given[0]}")
    batch = given[0].dims[: max(given[0].rank - known.ranks[0], 0)]
    for number, (shape, rank) in enumerate(zip(given, known.ranks, strict=True)):
        before = () if rank == SCALAR else batch
        fits = shape.rank == len(before) + max(rank, 0) and shape.dims[: len(before)] == before
        typed = S32 if number in known.integers else dtype
        require(instr, fits and shape.dtype is typed, f"takes {typed} matrices, got {shape}")
    results, leaves = known.results(given, call.options), result_leaves(instr)
    if results is None:
        sizes = ", ".join(map(str, given))
        require(instr, False, f"takes operands that fit together, got {sizes}")
        return
    require(instr, len(results) == len(leaves), f"gives {len(results)} arrays")
    for number, shape in enumerate(results):
        same_leaf(instr, number, shape)


def _host(instr: Instruction, operands: Sequence[HostValue]) -> HostValue:
    call, arrays, leaves = _known(instr), host_arrays(operands), result_leaves(instr)
    ranks = call.routine.ranks
    batch = arrays[0].shape[: arrays[0].ndim - ranks[0]]
    results = [np.zeros(leaf.dims, leaf.dtype.numpy) for leaf in leaves]
    for at in np.ndindex(batch):
        given = [a if rank == SCALAR else a[at] for a, rank in zip(arrays, ranks, strict=True)]
        parts = call.routine.run(given, call.options)
        for result, part in zip(results, parts, strict=True):
            result[at if result.ndim else ()] = part
    return as_result(instr, results)


def _on_device(instr: Instruction) -> DeviceChoice:
    call = _known(instr)
    most = call.routine.most
    if most is None:
        return NoDevice(f"{call.name} has no kernel: it runs on the host only")
    leaves = result_leaves(instr)
    batch = max(leaf.rank for leaf in leaves) - 2
    sizes = [n for leaf in leaves for n in leaf.dims[batch:]]
    if call.name == "syrk":
        return symmetric_product
    if call.options.get("sort") == "N" and call.name == "eigh":
        return NoDevice("the kernel of eigh gives values that rise")
    if not all(leaf.elements for leaf in leaves):
        return NoDevice("has an array without elements")
    if max(sizes, default=0) > most:
        return NoDevice(f"the kernel of {call.name} takes matrices of up to {most} rows")
    return OwnKernel("lapack")


def _target(name: str) -> Target:
    plain = _triangular_solve if name == "trsm" else as_written
    return Target(_check, _host, _on_device, _why_not, plain)


def _all_types() -> tuple[DType, ...]:
    return tuple(DTYPES[name] for name in _TYPES.values())


_NAMED: dict[str, tuple[str, Reader, tuple[DType, ...]]] = {
    f"lapack_{letter}{name}_ffi": (name, characters, (DTYPES[_TYPES[letter]],))
    for name, known in ROUTINES.items()
    for letter in known.letters
} | {
    target: (name, solver_options, _all_types())
    for target, name in (
        *((f"{maker}solver_{n}_ffi", n) for n in _SOLVER for maker in ("cu", "hip")),
        *_LIBRARIES.items(),
    )
}
_NAMED["Eigh"] = ("eigh", listed_options, _all_types())
LAPACK = {target: _target(name) for target, (name, _, _) in _NAMED.items()}
