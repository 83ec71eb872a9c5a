"""What is here of what CUDA and extras take, whether it works, and what to do where it does not."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from shutil import which
from typing import Any

import numpy as np

from hlo2graph.errors import BackendError, HloError

SCHEMA = {"name": "hlo2graph.doctor", "version": 1}
OK, MISSING, BROKEN = "ok", "missing", "broken"
EXTRA = "pip install 'hlo2graph[cuda]'"
CUDA_RUN = "cuda run"
OLDEST = 12030  # the first driver version with conditional nodes
SWITCHES = 12080
BINDINGS = 13000  # what the bindings and NVRTC that are installed are for
PROBE = """HloModule probe
ENTRY probe {
  x = f32[1000] parameter(0)
  y = f32[1000] multiply(x, x)
  ROOT z = f32[1000] add(x, y)
}
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `fix` says what to do about it, where it is not ok."""

    what: str
    state: str
    found: str
    fix: str = ""


def examine() -> tuple[Finding, ...]:
    """Look at everything, in the order in which one thing needs another."""
    looks = {
        "host": _host,
        "cuda-bindings": _bindings,
        "NVRTC": _nvrtc,
        "driver": _driver,
        "GPU": _device,
        CUDA_RUN: _run,
        "cuBLASLt": _products,
        "jax": _jax,
        "TensorFlow": _tensorflow,
        "Graphviz": _graphviz,
    }
    return tuple(_safely(what, look) for what, look in looks.items())


def works(findings: tuple[Finding, ...]) -> bool:
    """Tell whether everything that is there works."""
    return all(f.state != BROKEN for f in findings)


def doctor_json(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """Return what `doctor --json` prints: schema `hlo2graph.doctor`, version 1."""
    return {"schema": SCHEMA, "findings": [asdict(f) for f in findings]}


def doctor_text(findings: tuple[Finding, ...]) -> str:
    """Return the findings as lines, and what they come to."""
    width = max(len(f.what) for f in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.what:{width}}  {finding.state:7}  {finding.found}")
        if finding.state != OK and finding.fix:
            lines.append(f"{'':{width}}  {'':7}  -> {finding.fix}")
    cuda = next(f for f in findings if f.what == CUDA_RUN)
    lines.append("")
    lines.append(
        "Programs run on the GPU here."
        if cuda.state == OK
        else "Programs run on the host here; a GPU is needed by nothing but `run --backend cuda`, "
        "`pointers`, `dot --driver` and compiled plans for one."
    )
    return "\n".join(lines)


def _safely(what: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except Exception as error:  # a diagnosis does not end because something is broken
        return Finding(what, BROKEN, f"{type(error).__name__}: {error}")


def _host() -> Finding:
    return Finding("host", OK, f"NumPy {np.__version__}, Python {sys.version.split()[0]}")


def _bindings() -> Finding:
    try:
        found = version("cuda-bindings")
    except PackageNotFoundError:
        return Finding("cuda-bindings", MISSING, "not installed", EXTRA)
    try:
        import hlo2graph.backends.cuda.driver  # noqa: F401  # whether it loads
    except BackendError as error:
        return Finding("cuda-bindings", BROKEN, f"{found}: {error}", f"{EXTRA} --force-reinstall")
    return Finding("cuda-bindings", OK, found)


def _nvrtc() -> Finding:
    from hlo2graph.backends.cuda.compiler import compile_ptx, nvrtc_version

    if not _has_bindings():
        return Finding("NVRTC", MISSING, "needs cuda-bindings", EXTRA)
    try:
        found = nvrtc_version()
        compile_ptx('#include "hlo2graph.cuh"\n__global__ void probe() {}', "sm_90")
    except (BackendError, RuntimeError) as error:
        return Finding("NVRTC", BROKEN, str(error), f"{EXTRA} --force-reinstall")
    return Finding("NVRTC", OK, f"{found}, compiles for sm_90 without a GPU")


def _driver() -> Finding:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        fix = "install NVIDIA's driver, 580 or newer, on a machine with an NVIDIA GPU"
        return Finding("driver", MISSING, f"no {name}", fix)
    number = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    found = f"CUDA {number.value // 1000}.{number.value % 1000 // 10}"
    if number.value < OLDEST:
        fix = (
            "update it to 580 or newer: loops and branches need CUDA 12.3, the bindings are for 13"
        )
        return Finding("driver", BROKEN, f"{found}: too old for conditional nodes", fix)
    if number.value < SWITCHES:
        found = f"{found}; a switch becomes several nodes before 12.8"
    if number.value < BINDINGS:
        found = f"{found}; bindings and NVRTC are for CUDA 13, driver 580"
    return Finding("driver", OK, found)


def _device() -> Finding:
    if not _has_driver():
        return Finding("GPU", MISSING, "needs cuda-bindings and the driver")
    from hlo2graph.backends.cuda.driver import device_count, open_device

    try:
        count = device_count()
    except BackendError as error:
        if "NO_DEVICE" in str(error):
            return Finding("GPU", MISSING, "the driver sees none", "check nvidia-smi")
        return Finding("GPU", BROKEN, str(error), "check nvidia-smi; restart after a driver update")
    device = open_device()
    memory = f"{device.memory_bytes / 2**30:.0f} GiB"
    more = f", and {count - 1} more" if count > 1 else ""
    return Finding("GPU", OK, f"{device.name}, {device.arch}, {memory}{more}")


def _run() -> Finding:
    """Run a program of two kernels and look at its results."""
    from hlo2graph.backends.host import HostExecutable
    from hlo2graph.frontend.parse import parse

    if _device().state != OK:
        return Finding(CUDA_RUN, MISSING, "needs a GPU")
    from hlo2graph.backends.cuda.executable import CudaExecutable
    from hlo2graph.program.bind import make_plan
    from hlo2graph.program.buffers import assign_buffers
    from hlo2graph.program.copies import place_copies
    from hlo2graph.program.lower import lower

    program = place_copies(lower(parse(PROBE, "probe")))
    plan = make_plan(
        program, assign_buffers(program), target="sm_90", fuse="none", schedule="concurrent"
    )
    values = np.arange(1000, dtype=np.float32)
    try:
        (got,) = CudaExecutable(plan)(values)
    except (BackendError, HloError) as error:
        return Finding(CUDA_RUN, BROKEN, str(error))
    (want,) = HostExecutable(plan)(values)
    if not np.array_equal(got, want):
        return Finding(CUDA_RUN, BROKEN, "a program of two kernels gave wrong results")
    return Finding(CUDA_RUN, OK, "a program of two kernels gives the host's results")


def _products() -> Finding:
    from hlo2graph.backends.cuda.blas import INSTALL, library

    try:
        found = version("nvmath-python")
    except PackageNotFoundError:
        what = "not installed: products run on our own kernels"
        return Finding("cuBLASLt", MISSING, what, INSTALL)
    lt = library()
    if lt is None:
        what = f"nvmath-python {found} does not find the library: products run on our own kernels"
        return Finding("cuBLASLt", MISSING, what, INSTALL)
    return Finding("cuBLASLt", OK, f"{lt.get_version()}, nvmath-python {found}")


def _jax() -> Finding:
    uses = "for `--reference xla`, StableHLO, protos and hlo2graph.jax"
    return _package("jax", ("jax",), f"{uses}: pip install 'hlo2graph[jax]'")


def _tensorflow() -> Finding:
    names = ("tensorflow", "tensorflow-cpu")
    return _package("TensorFlow", names, "for `import --saved-model`: pip install 'hlo2graph[tf]'")


def _graphviz() -> Finding:
    uses = "for `dot -o` of .svg, .png and .pdf"
    package = _package("Graphviz", ("graphviz",), f"{uses}: pip install 'hlo2graph[draw]'")
    if package.state == OK and which("dot") is None:
        program = f"{uses}: apt-get install graphviz, brew install graphviz"
        return Finding("Graphviz", MISSING, "its program dot is not installed", program)
    return package


def _package(what: str, names: tuple[str, ...], otherwise: str) -> Finding:
    """Look for a package, which may come under several names."""
    for name in names:
        with suppress(PackageNotFoundError):
            return Finding(what, OK, version(name))
    return Finding(what, MISSING, "not installed, and not needed", otherwise)


def _has_driver() -> bool:
    return _has_bindings() and _driver().state == OK


def _has_bindings() -> bool:
    # another package may own the folder `cuda`, and find_spec imports it to look inside
    return find_spec("cuda") is not None and find_spec("cuda.bindings") is not None
