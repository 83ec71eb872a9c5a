"""The forms by the names that the op table knows them by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hlo2graph.backends.cuda.forms.fft import fft_kernel, suits_lines
from hlo2graph.backends.cuda.forms.folds.normalize import batch_norm_kernel
from hlo2graph.backends.cuda.forms.folds.scan import scan_kernel
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.linalg.lapack import lapack_kernel
from hlo2graph.backends.cuda.forms.linalg.solve import cholesky_kernel, solve_kernel
from hlo2graph.backends.cuda.forms.products.convolution import convolution_kernel, suits_convolution
from hlo2graph.backends.cuda.forms.products.dot import dot_kernel, fits
from hlo2graph.backends.cuda.forms.products.dot_few import dot_few_kernel, suits_few_columns
from hlo2graph.backends.cuda.forms.products.dot_gates import dot_gates_kernel, suits_gates
from hlo2graph.backends.cuda.forms.products.dot_rows import dot_rows_kernel, suits_teams
from hlo2graph.backends.cuda.forms.products.dot_tensor import dot_tensor_kernel, suits_tensor_cores
from hlo2graph.backends.cuda.forms.scatters.scatter import scatter_kernel
from hlo2graph.backends.cuda.forms.sorts.digits import count_kernel, digits_kernel
from hlo2graph.backends.cuda.forms.sorts.runs import runs_kernel
from hlo2graph.backends.cuda.forms.sorts.sort import sort_kernel
from hlo2graph.backends.cuda.forms.sorts.top import top_k_kernel
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.ops import OPS
from hlo2graph.ops.cumulative import scanned_dim
from hlo2graph.ops.device import OwnKernel, device_of

OWN_FORMS: Mapping[str, Callable[[Form], KernelSource]] = MappingProxyType(
    {
        "batch-norm": batch_norm_kernel,
        "cholesky": cholesky_kernel,
        "count-digits": count_kernel,
        "lapack": lapack_kernel,
        "scatter": scatter_kernel,
        "sort": sort_kernel,
        "sort-digits": digits_kernel,
        "sort-runs": runs_kernel,
        "topk": top_k_kernel,
        "triangular-solve": solve_kernel,
    }
)

SHARED_FORMS: tuple[tuple[str, Callable[[Form], bool], Callable[[Form], KernelSource]], ...] = (
    ("convolution", suits_convolution, convolution_kernel),
    ("dot", suits_gates, dot_gates_kernel),
    ("dot", suits_few_columns, dot_few_kernel),
    ("dot", suits_tensor_cores, dot_tensor_kernel),
    ("dot", suits_teams, dot_rows_kernel),
    ("dot", fits, dot_kernel),
    ("fft", suits_lines, fft_kernel),
    ("reduce-window", lambda form: scanned_dim(form.instr) is not None, scan_kernel),
)
"""Opcodes that the loop form can do too, when their own form fits, and that form."""


def own_kernel(form: Form) -> KernelSource:
    """Return the kernel of an instruction that needs its own."""
    device = device_of(OPS[form.instr.opcode].device, form.instr)
    assert isinstance(device, OwnKernel)
    return OWN_FORMS[device.form](form)
