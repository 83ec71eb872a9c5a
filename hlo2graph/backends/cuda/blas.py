"""Matrix products through cuBLASLt, by nvmath-python: planned once, captured as a graph.

cuBLASLt counts columns first. A row-major result is computed as its transpose, with the operands
exchanged; operands are read as they lie, so that nothing is ever transposed in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import gcd
from typing import Any

import numpy as np

from hlo2graph.hlo import DType
from hlo2graph.ops.matmul import Matmul, Matrix
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import ALIGNMENT

INSTALL = "pip install 'hlo2graph[blas]'"
_TYPES = {  # HLO dtype: cudaDataType, and for a result's dtype the type of alpha and beta
    "f8e4m3fn": ("CUDA_R_8F_E4M3", ""),
    "f8e5m2": ("CUDA_R_8F_E5M2", ""),
    "s8": ("CUDA_R_8I", ""),
    "s32": ("CUDA_R_32I", "CUDA_R_32I"),
    "f16": ("CUDA_R_16F", "CUDA_R_32F"),
    "bf16": ("CUDA_R_16BF", "CUDA_R_32F"),
    "f32": ("CUDA_R_32F", "CUDA_R_32F"),
    "f64": ("CUDA_R_64F", "CUDA_R_64F"),
    "c64": ("CUDA_C_32F", "CUDA_C_32F"),
    "c128": ("CUDA_C_64F", "CUDA_C_64F"),
}
_SCALARS = {"s32": np.int32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


@cache
def library() -> Any:
    """Return nvmath's bindings of cuBLASLt, or None where they or the library are missing."""
    try:
        from nvmath.bindings import cublasLt

        cublasLt.get_version()
    except Exception:  # a missing package, or whatever a missing shared library gives
        return None
    return cublasLt


@dataclass(frozen=True, slots=True)
class _Operand:
    """A matrix as cuBLASLt sees it: columns first, `ld` elements from column to column."""

    rows: int
    columns: int
    ld: int
    transposed: bool


class BlasPlan:
    """One product, its algorithm chosen by cuBLASLt's heuristics; `launch` enqueues it."""

    __slots__ = (
        "_algo",
        "_alpha",
        "_beta",
        "_desc",
        "_exchanged",
        "_layouts",
        "_offsets",
        "_results",
    )

    def __init__(self, product: Matmul, *, precise: bool, workspace: int) -> None:
        """Plan `product`; `precise` forbids TF32.

        Raises:
            NotImplementedError: cuBLASLt has no algorithm for it.
        """
        lt = library()
        self._exchanged = _needs_exchange(product.out)
        if self._exchanged:
            product = _exchanged(product)
        dtype = product.out.dtype
        self._alpha: Array = np.ones(1, _SCALARS.get(dtype.name, np.float32))
        self._beta = np.zeros_like(self._alpha)
        left, right = _operand(product.lhs), _operand(product.rhs)
        result = _Operand(product.m, product.n, _leading(product.out), transposed=False)
        operands = product.lhs.dtype
        self._desc = _describe(dtype, operands, left, right, precise=precise)
        seen = ((product.lhs, left), (product.rhs, right), (product.out, result))
        self._layouts = [_layout(m, o, product.batch) for m, o in seen]
        self._offsets = [m.offset * m.dtype.size for m in (product.lhs, product.rhs)]
        self._results = lt.MatmulHeuristicResult(1)
        self._algo = self._choose(workspace)

    def launch(self, lhs: int, rhs: int, out: int, workspace: tuple[int, int], stream: int) -> None:
        """Enqueue the product of matrices at these addresses; workspace is address and bytes."""
        if self._exchanged:
            lhs, rhs = rhs, lhs
        lhs, rhs = lhs + self._offsets[0], rhs + self._offsets[1]
        a, b, c = self._layouts
        library().matmul(
            blas_handle(),
            self._desc,
            self._alpha.ctypes.data,
            lhs,
            a,
            rhs,
            b,
            self._beta.ctypes.data,
            out,
            c,
            out,
            c,
            self._algo,
            *workspace,
            stream,
        )

    def _choose(self, workspace: int) -> int:
        lt = library()
        preference = lt.matmul_preference_create()
        most = np.array([workspace], np.uint64)
        attribute = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
        lt.matmul_preference_set_attribute(preference, attribute, most.ctypes.data, 8)
        names = (
            lt.MatmulPreferenceAttribute.MIN_ALIGNMENT_A_BYTES,
            lt.MatmulPreferenceAttribute.MIN_ALIGNMENT_B_BYTES,
        )
        for name, offset in zip(names, self._offsets, strict=True):
            aligned = np.array([gcd(offset, ALIGNMENT)], np.uint32)
            lt.matmul_preference_set_attribute(preference, name, aligned.ctypes.data, 4)
        found = np.zeros(1, np.int32)
        a, b, c = self._layouts
        try:
            lt.matmul_algo_get_heuristic(
                blas_handle(),
                self._desc,
                a,
                b,
                c,
                c,
                preference,
                1,
                self._results.ptr,
                found.ctypes.data,
            )
        except lt.cuBLASLtError as error:
            raise NotImplementedError(str(error)) from error
        finally:
            lt.matmul_preference_destroy(preference)
        if not found[0]:
            raise NotImplementedError("cuBLASLt has no algorithm for it")
        return int(self._results.ptr)  # the algorithm stands at the result's beginning

    def __del__(self) -> None:
        if (lt := library()) is None:
            return
        for layout in getattr(self, "_layouts", ()):
            lt.matrix_layout_destroy(layout)
        if hasattr(self, "_desc"):
            lt.matmul_desc_destroy(self._desc)


@cache
def blas_handle() -> int:
    """Return the process's cuBLASLt handle."""
    return int(library().create())


def _needs_exchange(out: Matrix) -> bool:
    """Tell whether the result lies row by row, so that its transpose is what is computed."""
    return out.row_stride != 1 and out.rows > 1


def _exchanged(product: Matmul) -> Matmul:
    """Return the product of the transposes: out' = rhs' @ lhs'."""
    return replace(
        product,
        m=product.n,
        n=product.m,
        lhs=_transposed(product.rhs),
        rhs=_transposed(product.lhs),
        out=_transposed(product.out),
    )


def _transposed(matrix: Matrix) -> Matrix:
    return replace(
        matrix,
        rows=matrix.columns,
        columns=matrix.rows,
        row_stride=matrix.column_stride,
        column_stride=matrix.row_stride,
    )


def _operand(matrix: Matrix) -> _Operand:
    """Return how an operand is read: as it is where columns are contiguous, else transposed."""
    if matrix.row_stride == 1 or (matrix.rows == 1 and matrix.column_stride != 1):
        return _Operand(matrix.rows, matrix.columns, _leading(matrix), transposed=False)
    flipped = _transposed(matrix)
    return _Operand(flipped.rows, flipped.columns, _leading(flipped), transposed=True)


def _leading(matrix: Matrix) -> int:
    """Return the distance from column to column; with one column any that is long enough."""
    return max(matrix.rows, matrix.column_stride if matrix.columns > 1 else 1)


def _describe(
    dtype: DType, operands: DType, left: _Operand, right: _Operand, *, precise: bool
) -> int:
    lt = library()
    from nvmath.bindings import cublas

    compute = cublas.ComputeType
    kinds = {"s32": compute.COMPUTE_32I, "f64": compute.COMPUTE_64F, "c128": compute.COMPUTE_64F}
    kind = kinds.get(dtype.name, compute.COMPUTE_32F)
    if dtype.name in ("f32", "c64") and operands.bits == dtype.bits and not precise:
        kind = compute.COMPUTE_32F_FAST_TF32
    desc = lt.matmul_desc_create(int(kind), _cuda_type(_TYPES[dtype.name][1]))
    attributes = lt.MatmulDescAttribute
    for attribute, operand in ((attributes.TRANSA, left), (attributes.TRANSB, right)):
        how = np.array([int(operand.transposed)], np.int32)
        lt.matmul_desc_set_attribute(desc, attribute, how.ctypes.data, 4)
    return int(desc)


def _layout(matrix: Matrix, operand: _Operand, batch: int) -> int:
    lt = library()
    kind = _cuda_type(_TYPES[matrix.dtype.name][0])
    layout = lt.matrix_layout_create(kind, operand.rows, operand.columns, operand.ld)
    if batch > 1:
        attributes = lt.MatrixLayoutAttribute
        count, offset = np.array([batch], np.int32), np.array([matrix.batch_stride], np.int64)
        lt.matrix_layout_set_attribute(layout, attributes.BATCH_COUNT, count.ctypes.data, 4)
        lt.matrix_layout_set_attribute(
            layout, attributes.STRIDED_BATCH_OFFSET, offset.ctypes.data, 8
        )
    return int(layout)


def _cuda_type(name: str) -> int:
    import nvmath

    return int(nvmath.CudaDataType[name])
