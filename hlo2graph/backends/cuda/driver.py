"""The CUDA driver through cuda.bindings: checked calls, the device, and memory.

Every failed call raises a BackendError that names the API, CUDA's own words for the result, and
what was being done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlo2graph.errors import BackendError

INSTALL = "pip install 'hlo2graph[cuda]'"

try:
    from cuda.bindings import driver as cuda
except ImportError as missing:  # the extra is not installed
    raise BackendError(f"the cuda backend needs cuda-python: {INSTALL}") from missing


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
    _, text = cuda.cuGetErrorString(status)
    words = text.decode() if text else "unknown error"
    return f"{api}: {status.name} ({words})" + (f", {doing}" if doing else "")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU and its primary context, made current on the thread that opened it."""

    ordinal: int
    name: str
    arch: str  # sm_90
    driver_version: int  # 13000 is CUDA 13.0
    multiprocessors: int
    l2_bytes: int
    context: Any

    def make_current(self) -> None:
        """Make the context current on the calling thread."""
        call(cuda.cuCtxSetCurrent, self.context)


def open_device(ordinal: int = 0) -> Device:
    """Open a GPU.

    Raises:
        BackendError: there is no driver, no GPU, or none of that number.
    """
    try:
        call(cuda.cuInit, 0)
    except (BackendError, RuntimeError) as error:
        raise BackendError(f"no CUDA driver answers here: {error}") from error
    count = call(cuda.cuDeviceGetCount)
    if ordinal >= count:
        raise BackendError(f"there is no GPU {ordinal}: the driver sees {count}")
    device = call(cuda.cuDeviceGet, ordinal)
    context = call(cuda.cuDevicePrimaryCtxRetain, device)
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
        context,
    )


class DeviceMemory:
    """A block of device memory, freed with the object."""

    __slots__ = ("address", "size")

    def __init__(self, size: int, doing: str) -> None:
        self.size = size
        self.address = 0
        self.address = int(call(cuda.cuMemAlloc, max(size, 1), doing=doing))

    def __del__(self) -> None:
        if self.address and cuda is not None:
            cuda.cuMemFree(self.address)
