"""A plan's kernels compiled for one architecture ahead of any device, to be loaded there later."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import partial

from hlo2graph.backends.cuda.compiler import Compiled, check_arch
from hlo2graph.backends.cuda.functions import compile_kernels
from hlo2graph.backends.cuda.kernels import KernelKey, Texts, kernels_of, write_kernels
from hlo2graph.backends.cuda.pointers.table_kernels import table_sources
from hlo2graph.backends.cuda.ports import ports_of
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.steps import StepSequence
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.program.plan import Plan

KERNELS_VERSION = 2
"""Of what a kernel is given and what it is called: a change makes stored machine code useless.

Arguments are the addresses of reads and writes in order (for the table: cells and offsets), those
of the kernels of builtin.py stand there.
"""
LAUNCHABLE = (1, KERNELS_VERSION)  # the first release took units to have three kernels each


@dataclass(frozen=True, slots=True)
class Prepared:
    """Kernels of every thunk, those too that a library may run where it is there.

    `units` hold them all, and what belongs to no HLO last; `table_units` those that read addresses
    from a table, where they were asked for.
    """

    arch: str
    sources: Mapping[KernelKey, KernelSource]
    units: tuple[Compiled, ...]
    table_units: tuple[Compiled, ...] = ()


def prepared(plan: Plan, arch: str, *, precise: bool, table: bool) -> Prepared:
    """Compile the kernels of `plan` for `arch`; no GPU is needed.

    precise: as `matmul_precision` other than default asks for. table: those too that read addresses
        from a table.

    Raises:
        InputError: NVRTC knows no such architecture.
        UnsupportedError: for operations that have no device code, all at once.
        BackendError: NVRTC is missing.
    """
    check_arch(arch)
    check_support(plan)
    sources = kernels_of(plan, precise=precise)
    units = compile_kernels(tuple(sources.values()), arch)
    if not table:
        return Prepared(arch, sources, tuple(units))
    variants = table_sources(plan, ports_of(plan, StepSequence((), ())), sources)
    return Prepared(arch, sources, tuple(units), tuple(compile_kernels(variants, arch)))


def prepared_here(
    plan: Plan, arch: str, without: Container[str], texts: Texts, *, precise: bool
) -> Prepared:
    """Compile the kernels of `plan`, but for computations that a library runs, for now alone.

    The first are compiled while others are being written. `texts` are known already.

    Raises:
        UnsupportedError: an array has more elements than the threads of one kernel.
        BackendError: NVRTC is missing.
    """
    sources: dict[KernelKey, KernelSource] = {}
    written = write_kernels(plan, without, precise=precise, known=texts.known)
    units = compile_kernels(
        (sources.setdefault(*made) for made in written), arch, partial(texts.keep_new, sources)
    )
    return Prepared(arch, sources, tuple(units))


def loads_on(arch: str, device: str) -> bool:
    """Tell whether machine code for `arch` runs on a `device`.

    That is one of the same major version and not older; for sm_90a it is that one alone.
    """
    made, there = number_of(arch), number_of(device)
    is_near = made // 10 == there // 10 and made <= there
    return made == there if arch.endswith("a") else is_near


def number_of(arch: str) -> int:
    """Return 90 for sm_90 and sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("af"))
