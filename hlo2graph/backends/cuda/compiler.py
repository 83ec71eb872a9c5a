"""CUDA C++ to cubin by NVRTC: in parallel, cached on disk by content, no GPU needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from hlo2graph.backends.cuda.cache import entry, load, store
from hlo2graph.backends.cuda.prelude import headers, headers_for
from hlo2graph.backends.cuda.source import HEADER
from hlo2graph.errors import BackendError, InputError

OPTIONS = (
    *("-std=c++17", "--device-as-default-execution-space"),
    *("--minimal", "--no-cache"),  # the headers that we use; what is kept, we keep ourselves
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A translation unit's machine code. `cached` says that it came from the disk."""

    cubin: bytes
    cached: bool


def unit_text(kernels: Sequence[str]) -> str:
    """Return one translation unit of several kernel definitions."""
    return f'#include "{HEADER}"\n\n' + "\n".join(kernels)


def compile_units(units: Iterable[str], arch: str) -> list[Compiled]:
    """Compile translation units for `arch` (sm_NN), as many at once as there are processors.

    Each is begun as soon as it is there, while those behind it are still written.
    """
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        begun = [pool.submit(compile_cubin, text, arch) for text in units]
        return [unit.result() for unit in begun]
    finally:
        pool.shutdown(cancel_futures=True)


def compile_cubin(text: str, arch: str) -> Compiled:
    """Compile one translation unit, or take it from the cache.

    Raises:
        BackendError: NVRTC is missing or refuses the text; its log is in the message.
    """
    path = entry("cubin", arch, nvrtc_version(), *OPTIONS, _headers_digest(), text)
    if (kept := load(path)) is not None:
        return Compiled(kept, cached=True)
    cubin = _compile(text, arch, "cubin")
    store(path, cubin)
    return Compiled(cubin, cached=False)


def compile_ptx(text: str, arch: str) -> str:
    """Return the PTX of one translation unit."""
    return _compile(text, arch, "ptx").rstrip(b"\0").decode()


def nvrtc_version() -> str:
    """Return NVRTC's version, as 13.0."""
    _, major, minor = _nvrtc().nvrtcVersion()
    return f"{major}.{minor}"


def check_arch(arch: str) -> None:
    """Check that NVRTC compiles for `arch`.

    Raises:
        InputError: it does not know it.
        BackendError: NVRTC is missing.
    """
    nvrtc = _nvrtc()
    _, count = nvrtc.nvrtcGetNumSupportedArchs()
    _, known = nvrtc.nvrtcGetSupportedArchs()
    if int(arch.removeprefix("sm_").rstrip("af")) not in list(known)[:count]:
        names = ", ".join(f"sm_{number}" for number in known)
        raise InputError(f"NVRTC {nvrtc_version()} compiles for {names}, not for {arch}")


@cache
def _headers_digest() -> str:
    return hashlib.sha256("\0".join(t for pair in headers() for t in pair).encode()).hexdigest()


@cache
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as missing:
        raise BackendError(
            "compiling kernels needs cuda-python and NVRTC: pip install 'hlo2graph[cuda]'"
        ) from missing
    return nvrtc


def _compile(text: str, arch: str, kind: str) -> bytes:
    nvrtc = _nvrtc()
    included = headers_for(text)
    names = [n.encode() for n, _ in included]
    texts = [t.encode() for _, t in included]
    target = f"--gpu-architecture={arch if kind == 'cubin' else arch.replace('sm_', 'compute_')}"
    options = [o.encode() for o in (target, *OPTIONS)]
    created, program = nvrtc.nvrtcCreateProgram(
        text.encode(), b"kernels.cu", len(names), texts, names
    )
    _require(nvrtc, created, "nvrtcCreateProgram", "")
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        nvrtc.nvrtcDestroyProgram(program)
        _require(nvrtc, status, "nvrtcCompileProgram", log.rstrip(b"\0 ").decode())
    get = (
        (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        if kind == "cubin"
        else (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    )
    _, size = get[0](program)
    data: bytes = b" " * size
    get[1](program, data)
    nvrtc.nvrtcDestroyProgram(program)
    return data


def _require(nvrtc: Any, status: Any, api: str, log: str) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BackendError(f"{api}: {status.name}" + (f"\n{log}" if log else ""))
