"""CUDA C++ to cubin by NVRTC: in parallel, cached on disk by content, no GPU needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import Lock

from hlo2graph.backends.cuda.cache import entry, load, store
from hlo2graph.backends.cuda.helpers import HELPERS
from hlo2graph.backends.cuda.nvrtc import Nvrtc, Refused
from hlo2graph.backends.cuda.prelude import headers, headers_for
from hlo2graph.backends.cuda.source import HEADER
from hlo2graph.errors import BackendError, InputError

OPTIONS = (
    *("-std=c++17", "--device-as-default-execution-space"),
    "--fmad=false",  # an instruction has the same bits in any kernel: see elementwise.cuh
    *("--minimal", "--no-cache"),  # the headers that we use; what is kept, we keep ourselves
)
_HERE = Lock()  # held by what is compiled by this process: helpers take what comes meanwhile


@dataclass(frozen=True, slots=True)
class Compiled:
    """A translation unit's machine code. `cached` says that it came from the disk."""

    cubin: bytes
    cached: bool


def unit_text(kernels: Sequence[str]) -> str:
    """Return one translation unit of several kernel definitions."""
    return f'#include "{HEADER}"\n\n' + "\n".join(kernels)


def start_helpers() -> None:
    """Start what compiles beside this process, as it soon has kernels: it takes a while to begin.

    Raises:
        BackendError: NVRTC is missing.
    """
    HELPERS.start(_library())


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
    start_helpers()
    cubin = _compile(text, arch, "CUBIN")
    store(path, cubin)
    return Compiled(cubin, cached=False)


def compile_ptx(text: str, arch: str) -> str:
    """Return the PTX of one translation unit."""
    return _compile(text, arch, "PTX").rstrip(b"\0").decode()


def nvrtc_version() -> str:
    """Return NVRTC's version, as 13.0."""
    major, minor = _nvrtc().version()
    return f"{major}.{minor}"


def check_arch(arch: str) -> None:
    """Check that NVRTC compiles for `arch`.

    Raises:
        InputError: it does not know it.
        BackendError: NVRTC is missing.
    """
    known = _nvrtc().architectures()
    if int(arch.removeprefix("sm_").rstrip("af")) not in known:
        names = ", ".join(f"sm_{number}" for number in known)
        raise InputError(f"NVRTC {nvrtc_version()} compiles for {names}, not for {arch}")


@cache
def _headers_digest() -> str:
    return hashlib.sha256("\0".join(t for pair in headers() for t in pair).encode()).hexdigest()


@cache
def _library() -> str:
    """Return the path of NVRTC."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError as missing:
        raise BackendError(
            "compiling kernels needs cuda-python and NVRTC: pip install 'hlo2graph[cuda]'"
        ) from missing
    try:
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except DynamicLibNotFoundError as missing:
        raise BackendError(f"NVRTC is missing: pip install 'hlo2graph[cuda]'\n{missing}") from None
    assert isinstance(path, str)
    return path


@cache
def _nvrtc() -> Nvrtc:
    return Nvrtc(_library())


def _compile(text: str, arch: str, kind: str) -> bytes:
    target = f"--gpu-architecture={arch if kind == 'CUBIN' else arch.replace('sm_', 'compute_')}"
    asked = (text, headers_for(text), (target, *OPTIONS), kind)
    is_first = _HERE.acquire(blocking=False)
    try:
        answer = None if is_first else HELPERS.compile(asked)
        found = _nvrtc().compile(*asked) if answer is None else answer
    except Refused as refused:
        found = str(refused)
    finally:
        if is_first:
            _HERE.release()
    if isinstance(found, str):
        raise BackendError(found)
    return found
