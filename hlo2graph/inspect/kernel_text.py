"""A plan's kernels: as one translation unit to read or to compile, or compiled."""

from __future__ import annotations

from hlo2graph.backends.cuda.compiler import compile_cubin, compile_ptx, unit_text
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.program.plan import Plan


def kernels_text(plan: Plan) -> str:
    """Return the CUDA C++ of every kernel, each under a line that says how it is launched."""
    return unit_text([f"{_launch(s)}\n{s.text}" for s in _sources(plan)])


def kernels_ptx(plan: Plan, arch: str) -> str:
    """Return the PTX of all kernels for sm_NN."""
    return compile_ptx(kernels_text(plan), arch)


def kernels_cubin(plan: Plan, arch: str) -> bytes:
    """Return one cubin of all kernels for sm_NN."""
    return compile_cubin(kernels_text(plan), arch).cubin


def _sources(plan: Plan) -> tuple[KernelSource, ...]:
    check_support(plan)
    return tuple(dict.fromkeys(kernels_of(plan).values()))


def _launch(source: KernelSource) -> str:
    x, y, z = source.grid
    blocks = f"{x}" if y == z == 1 else f"{x}x{y}x{z}"
    shared = f", {source.shared_bytes} bytes of shared memory" if source.shared_bytes else ""
    return f"// {blocks} block{'s' * (blocks != '1')} of {source.threads} threads{shared}"
