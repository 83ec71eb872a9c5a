"""The CUDA driver through cuda.bindings: checked calls and the device.

Every failed call raises a BackendError that names the API, CUDA's own words for the result, and
what was being done.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from hlo2graph.errors import BackendError

OTHERWISE = "hlo2graph doctor says what is missing"
INSTALL = "pip install 'hlo2graph[cuda]'"

try:
    from cuda.bindings import driver as _bindings
except ImportError as missing:  # the extra is not installed
    raise BackendError(f"the cuda backend needs cuda-bindings: {INSTALL}") from missing

cuda: Any = _bindings  # it has no types

LOST = "this process can no longer use the GPU: start it anew"
STICKY = {  # errors of kernels, after which every call in the context fails
    f"CUDA_ERROR_{name}"
    for name in (
        "ASSERT",
        "ECC_UNCORRECTABLE",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_ADDRESS",
        "ILLEGAL_INSTRUCTION",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "LAUNCH_FAILED",
        "LAUNCH_TIMEOUT",
        "MISALIGNED_ADDRESS",
    )
}


def call(function: Any, *arguments: Any, doing: str = "") -> Any:
    """Call a driver function; return its result (a tuple of several, None of none).

    Raises:
        BackendError: the driver returned anything but CUDA_SUCCESS.
    """
    status, *found = function(*arguments)
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise BackendError(explain(function.__name__, status, doing))
    return found[0] if len(found) == 1 else tuple(found) if found else None


def explain(api: str, status: Any, doing: str) -> str:
    """Return one line for a failed call: the API, the result's name and text, the occasion."""
    result = cuda.CUresult(int(status))
    _, text = cuda.cuGetErrorString(result)
    words = text.decode() if text else "unknown error"
    lost = f"; {LOST}" if result.name in STICKY else ""
    return f"{api}: {result.name} ({words})" + (f", {doing}" if doing else "") + lost


def is_out_of_memory(error: BackendError) -> bool:
    """Tell whether a failed call found no device memory."""
    return "CUDA_ERROR_OUT_OF_MEMORY" in str(error)


@dataclass(frozen=True, slots=True)
class Bound:
    """A driver call whose arguments were converted once: calling it again costs next to nothing.

    cuda.bindings converts arguments at each call, which takes longer than the driver itself.
    """

    api: str
    function: Callable[[], int]
    place: str  # for errors: what is done, and the HLO it is done for
    keep: object = None  # what the arguments point to

    def __call__(self) -> None:
        """Make the call."""
        if status := self.function():
            raise BackendError(explain(self.api, status, self.place))


def bound(api: str, *arguments: Any, place: str = "", keep: object = None) -> Bound:
    """Return a call of `api`, a symbol of the driver library, with arguments from `ctypes`.

    `keep` is what they point to: it lives as long as the call.
    """
    return Bound(api, partial(getattr(_library(), api), *arguments), place, keep)


@cache
def _library() -> ctypes.CDLL:
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise BackendError(f"the CUDA driver library {name} cannot be loaded: {error}") from error


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and its primary context, made current on the thread that opened it."""

    ordinal: int
    name: str
    arch: str  # sm_90
    driver_version: int  # 13000 is CUDA 13.0
    multiprocessors: int
    l2_bytes: int
    memory_bytes: int
    context: Any

    def make_current(self) -> None:
        """Make the context current on the calling thread."""
        call(cuda.cuCtxSetCurrent, self.context)

    @property
    def driver_text(self) -> str:
        """The driver's CUDA version, as 13.0."""
        return version_text(self.driver_version)


def version_text(version: int) -> str:
    """Return 12080 as 12.8."""
    return f"{version // 1000}.{version % 1000 // 10}"


@cache
def open_device(ordinal: int = 0) -> Device:
    """Open a GPU, once in a process.

    Raises:
        BackendError: there is no driver, no GPU, or none of that number.
    """
    count = device_count()
    if ordinal >= count:
        seen = f"the driver sees {count}" if count else "the driver sees none"
        raise BackendError(f"there is no GPU {ordinal}: {seen}")
    device = call(cuda.cuDeviceGet, ordinal)
    context = call(cuda.cuDevicePrimaryCtxRetain, device, doing="opening the GPU")
    call(cuda.cuCtxSetCurrent, context)
    attributes = cuda.CUdevice_attribute

    def attribute(which: Any) -> int:
        return int(call(cuda.cuDeviceGetAttribute, which, device))

    major = attribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    minor = attribute(attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
    return Device(
        ordinal,
        call(cuda.cuDeviceGetName, 256, device).split(b"\0")[0].decode(),
        f"sm_{major}{minor}",
        int(call(cuda.cuDriverGetVersion)),
        attribute(attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        attribute(attributes.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        int(call(cuda.cuDeviceTotalMem, device)),
        context,
    )


def device_count() -> int:
    """Return how many GPUs the driver sees.

    Raises:
        BackendError: there is no driver, or it does not start.
    """
    try:
        call(cuda.cuInit, 0)
    except BackendError as error:
        raise BackendError(f"no CUDA driver answers here: {error}; {OTHERWISE}") from error
    except RuntimeError as error:  # no driver library, which cuda-bindings has words of its own for
        raise BackendError(f"no NVIDIA driver is installed here; {OTHERWISE}") from error
    return int(call(cuda.cuDeviceGetCount))
