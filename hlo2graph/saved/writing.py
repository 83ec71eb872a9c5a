"""A plan, or what runs one, to a .h2g file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from hlo2graph import __version__
from hlo2graph.backends.cuda.choices import Choices, CudaOptions
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import InputError
from hlo2graph.hlo import Module
from hlo2graph.options import check_keywords
from hlo2graph.program.plan import Plan
from hlo2graph.saved.choices import checked
from hlo2graph.saved.codec import Encoder
from hlo2graph.saved.container import Section, write_container

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.executable import CudaExecutable

WRITER = f"hlo2graph {__version__}"


def save(
    program: Plan | HostExecutable | CudaExecutable,
    path: str | os.PathLike[str],
    *,
    module: Module | None = None,
    arches: Sequence[str] | None = None,
    **options: Unpack[CudaOptions],
) -> None:
    """Write a plan, or what `compile` returned, to a .h2g file that `load` runs without compiling.

    module: what the plan was made of, for `run` to check results against.
    arches: the GPUs (sm_90) that kernels are compiled for, by NVRTC, which needs no GPU; none
        keeps the plan alone, which is then compiled where it is loaded. Left out, it is the GPU
        that the executable is on, or the plan's target.
    options: how the plan is to run on a GPU, as for `compile`; an executable has its own.
    Raises HloError, BackendError where NVRTC is missing, and OSError.
    """
    check_keywords("hlo2graph.save", options, CudaOptions.__annotations__)
    plan, arch, made = _taken(program)
    choices = checked(replace(made, **options))
    if arches is None:
        arches = () if arch is None else (arch,)
    encoder = Encoder()
    sections = {"plan": _json(encoder(plan))}
    if module is not None:
        sections["module"] = _json(encoder(module))
    sections["shared"] = _json({"fields": encoder.fields, "shared": encoder.shared})
    sections["data"] = Section(encoder.data, packed=False)
    header: dict[str, object] = {
        "module": plan.name,
        "target": plan.target,
        "fuse": plan.fuse,
        "schedule": plan.schedule,
        "choices": asdict(choices),
        "arches": list(dict.fromkeys(arches)),
    }
    if arches:
        from hlo2graph.saved.kernels import kernel_sections, versions

        header |= versions()
        sections |= kernel_sections(plan, tuple(dict.fromkeys(arches)), choices)
    write_container(Path(path), WRITER, header, sections)


def _taken(
    program: Plan | HostExecutable | CudaExecutable,
) -> tuple[Plan, str | None, Choices]:
    """Return the plan, the architecture to compile for and how it is to run."""
    on_cuda = sys.modules.get("hlo2graph.backends.cuda.executable")
    if isinstance(program, Plan):
        return program, None if program.target == "host" else program.target, Choices()
    if isinstance(program, HostExecutable):
        return program.plan, None, Choices()
    if on_cuda is not None and isinstance(program, on_cuda.CudaExecutable):
        return program.plan, program.device.arch, program.choices
    raise InputError(f"save takes a plan or what compile returned, not {type(program).__name__}")


def _json(value: object) -> Section:
    return Section([json.dumps(value, separators=(",", ":")).encode()])
