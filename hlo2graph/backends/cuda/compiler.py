"""CUDA C++ to cubin by NVRTC: in parallel, cached on disk by content, no GPU needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hlo2graph.atomic import replacing
from hlo2graph.backends.cuda.prelude import headers, headers_for
from hlo2graph.backends.cuda.source import HEADER
from hlo2graph.errors import BackendError, InputError

OPTIONS = ("-std=c++17", "--device-as-default-execution-space", "--minimal")
CACHE_VARIABLE = "HLO2GRAPH_CACHE_DIR"
DIGEST_BYTES = hashlib.sha256().digest_size


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
    folder = cache_folder()
    path = folder / f"{_key(text, arch)}.cubin" if folder else None
    if path and (kept := _load(path)):
        return Compiled(kept, cached=True)
    cubin = _compile(text, arch, "cubin")
    if path:
        _store(path, cubin)
    return Compiled(cubin, cached=False)


def compile_ptx(text: str, arch: str) -> str:
    """Return the PTX of one translation unit."""
    return _compile(text, arch, "ptx").rstrip(b"\0").decode()


def cache_folder() -> Path | None:
    """Return where cubins are kept: $HLO2GRAPH_CACHE_DIR, or the user's cache folder.

    None where the user has no home: containers run under numbers that no account has.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base) / "hlo2graph"


def _load(path: Path) -> bytes | None:
    """Return a kept cubin, if it is there and as it was written.

    A file may lose its end when the machine goes down, and a driver given half a cubin may crash.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, cubin = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    return cubin if hashlib.sha256(cubin).digest() == digest else None


def _store(path: Path, cubin: bytes) -> None:
    """Write whole or not at all, a digest first; a cache that cannot be written is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as whole:
            whole.write(hashlib.sha256(cubin).digest() + cubin)
    except OSError:
        return


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


def _key(text: str, arch: str) -> str:
    parts = (arch, nvrtc_version(), *OPTIONS, text, *(t for pair in headers() for t in pair))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


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
