"""Arrays that stay on the device, and taking those of other libraries."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hlo2graph.backends.arguments import FOREIGN, Leaf
from hlo2graph.backends.cuda import dlpack
from hlo2graph.backends.cuda.driver import Device, call, cuda
from hlo2graph.backends.cuda.memory import (
    DeviceMemory,
    Event,
    Stream,
    read_array,
    strides_of,
    write_array,
)
from hlo2graph.errors import InputError
from hlo2graph.hlo import Shape

if TYPE_CHECKING:
    from hlo2graph.ops.spec import Array

LEGACY_STREAM, NO_SYNCHRONISATION = 1, -1
UNTOLD = -1  # the number of a GPU that an array does not tell


class DeviceArray:
    """The bytes of one input or result of an executable, on the device.

    A result shows the executable's own memory, which the next call of the same thread on the same
    stream overwrites. Who wants to keep it asks `run` for a fresh one, or copies it. `stream` is
    where it is ready: who uses it on another one must wait, which DLPack sees to. `passes` counts
    how often any array came to be ready on another stream than before.
    """

    passes: ClassVar[int] = 0

    __slots__ = (
        *("__weakref__", "_device"),
        *("address", "dtype", "home", "layout", "shape", "stream", "strides"),
    )

    def __init__(
        self, address: int, layout: Shape, device: Device, stream: Stream, home: object
    ) -> None:
        self.address = address
        self.dtype = layout.dtype.numpy
        self.shape = layout.dims
        self.strides = strides_of(layout)
        self.layout = layout
        self._device = device
        self.stream = stream
        self.home = home  # keeps the memory alive

    def fresh(self, size: int, stream: Stream, doing: str, owner: str) -> DeviceArray:
        """Return an array like this one, ready on `stream`, in `size` bytes of its own."""
        other, block = object.__new__(DeviceArray), DeviceMemory(size, doing, owner)
        other.address, other.home, other.stream = block.address, block, stream
        other.dtype, other.layout, other.shape = self.dtype, self.layout, self.shape
        other.strides, other._device = self.strides, self._device
        return other

    def __repr__(self) -> str:
        return f"DeviceArray({self.layout.without_layout_text()} on {self._device.name})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a device array cannot become a NumPy array without a copy")
        self._device.make_current()
        self.stream.synchronize("waiting for a result")
        found = read_array(self.address, self.layout)
        return found if dtype is None else found.astype(dtype)

    def pass_to(self, stream: Stream) -> None:
        """Be ready on `stream` from now on, which has waited for the one before."""
        if stream is not self.stream:
            self.stream = stream
            DeviceArray.passes += 1

    def fill(self, array: Array) -> None:
        """Copy an array of its element type and shape from the host."""
        self._device.make_current()
        write_array(self.address, self.layout, array, self.stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._device.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,  # the plain form, for all
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        if copy or (dl_device is not None and dl_device != self.__dlpack_device__()):
            raise BufferError("a device array is handed out where it lies, without a copy")
        self._device.make_current()
        if stream != NO_SYNCHRONISATION:
            let_wait(LEGACY_STREAM if stream is None else stream, self.stream.handle)
        device = self.__dlpack_device__()
        return dlpack.make_capsule(self.address, self.dtype, self.shape, self.strides, device, self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.isbuiltin != 1:
            raise AttributeError(f"__cuda_array_interface__ has no type for {self.dtype.name}")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": self.strides,
            "version": 3,
            "stream": int(self.stream),
        }


def let_wait(waiting: int, running: Any) -> None:
    """Let one stream wait for what another one has been given so far."""
    event = Event()
    event.record(running)
    call(cuda.cuStreamWaitEvent, cuda.CUstream(waiting), event.handle, 0)


def is_of_jax(array: object) -> bool:
    """Tell whether an array is JAX's: nothing can write or move it once it is made."""
    kind: Any = type(array)
    return _is_of_jax(kind)


@cache
def _is_of_jax(kind: Any) -> bool:
    return kind.__module__.partition(".")[0] == "jaxlib" and all(
        hasattr(kind, name) for name in ("is_deleted", "is_ready")
    )


def gpu_of(arg: Any) -> int | None:
    """Return the number of the GPU that an array of any library is on, None if it is on none.

    Some do not tell which: UNTOLD.

    Raises:
        InputError: it does not tell.
    """
    if isinstance(arg, np.ndarray):
        return None
    try:
        if hasattr(arg, "__dlpack_device__"):
            kind, number = arg.__dlpack_device__()
            return int(number) if int(kind) in (dlpack.CUDA, dlpack.CUDA_MANAGED) else None
        return UNTOLD if hasattr(arg, "__cuda_array_interface__") else None
    except FOREIGN as error:
        raise InputError(f"{type(arg).__name__} does not tell where it is: {error}") from None


def is_writable(array: Any) -> bool:
    """Tell whether the owner of a device array lets others write it."""
    if isinstance(array, DeviceArray):
        return True
    if is_of_jax(array):
        return False
    try:
        return not array.__cuda_array_interface__["data"][1]
    except FOREIGN:  # DLPack has arrays that this has not, and all that it has can be written
        return True


class Taker:
    """Takes device arrays for one leaf; `which` is that leaf for messages: input 0."""

    __slots__ = ("_device", "_form", "_leaf", "_strides", "_which")

    def __init__(self, leaf: Leaf, which: str, device: Device) -> None:
        self._leaf, self._which, self._device = leaf, which, device
        dtype, dims, self._strides = leaf.shape.dtype.numpy, leaf.shape.dims, strides_of(leaf.shape)
        self._form = dlpack.Form(dtype, dims, self._strides, (dlpack.CUDA, device.ordinal))

    def __call__(self, arg: Any, gpu: int, stream: Stream) -> tuple[int, object]:
        """Return the address of an array on a GPU, checked against the leaf, and what owns it.

        `stream`, which is one of the device, waits for whatever still writes the array.

        Raises:
            InputError: element type, shape, layout or device differ from the leaf's.
        """
        try:
            found = self._taken(arg, gpu, stream)
        except (TypeError, BufferError) as error:
            raise InputError(f"{self._what}, got {error}") from None
        except FOREIGN as error:
            told = f"{type(error).__name__}: {error}"
            kind = type(arg).__name__
            raise InputError(f"{self._what}; {kind} does not hand it over: {told}") from None
        if isinstance(found, dlpack.Foreign):
            self._check(found)
            return found.address, found.owner
        return found

    def at_once(self, arg: Any) -> tuple[int, object] | None:
        """Return the same of an array of JAX's that is ready, None for any that is not just so."""
        try:
            capsule = arg.__dlpack__() if arg.is_ready() else None
        except FOREIGN:
            return None
        address = None if capsule is None else self._form.address(capsule)
        return (address, capsule) if address else None

    @property
    def _what(self) -> str:
        return f"{self._which} ({self._leaf.name}) is {self._leaf.shape.without_layout_text()}"

    def _taken(self, arg: Any, gpu: int, stream: Stream) -> dlpack.Foreign | tuple[int, object]:
        """Return where an array lies: its address and its owner if no check is left to make.

        Raises:
            TypeError: it is not on the device, or of a type that is none here.
        """
        device = self._device
        if isinstance(arg, DeviceArray):
            if int(arg.stream) != int(stream):
                let_wait(int(stream), arg.stream.handle)
            return dlpack.Foreign(arg.address, arg.dtype, arg.shape, arg.strides, arg)
        if gpu != UNTOLD and hasattr(arg, "__dlpack__"):
            if gpu != device.ordinal:
                raise TypeError(f"an array on GPU {gpu}, not on GPU {device.ordinal}")
            capsule = arg.__dlpack__(stream=int(stream))
            address = self._form.address(capsule)
            return (address, capsule) if address else dlpack.read_capsule(capsule)
        interface = arg.__cuda_array_interface__
        if interface.get("mask") is not None:
            raise TypeError("an array with a mask")
        dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
        address = int(interface["data"][0])
        if address:  # it is 0 where there are no elements
            _check_place(address, device)
        if (producer := interface.get("stream")) is not None:
            let_wait(int(stream), cuda.CUstream(producer))
        strides = interface.get("strides") or dlpack.row_major(shape, dtype.itemsize)
        return dlpack.Foreign(address, dtype, shape, tuple(strides), arg)

    def _check(self, found: dlpack.Foreign) -> None:
        """Raise InputError unless an array is just as the leaf is."""
        shape, want = self._leaf.shape, self._strides
        if found.dtype != shape.dtype.numpy:
            takes = shape.dtype.numpy.name
            raise InputError(f"{self._what}, so it takes dtype {takes}, got {found.dtype.name}")
        if found.shape != shape.dims:
            raise InputError(f"{self._what}, so it takes shape {shape.dims}, got {found.shape}")
        if shape.elements and not found.address:
            raise InputError(f"{self._what}, got an array at address 0")
        if len(want) != len(found.strides):
            raise InputError(f"{self._what}, got an array of {len(found.strides)} strides")
        if shape.elements and any(
            size > 1 and have != need
            for size, have, need in zip(found.shape, found.strides, want, strict=True)
        ):
            raise InputError(
                f"{self._what}, laid out with strides {want} in bytes; the device array has "
                f"{found.strides}"
            )


def _check_place(address: int, device: Device) -> None:
    """Raise TypeError unless the device's driver knows the address as memory of that device."""
    which = cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, number = cuda.cuPointerGetAttribute(which, address)
    if status != cuda.CUresult.CUDA_SUCCESS or int(number) != device.ordinal:
        where = f"on GPU {int(number)}" if status == cuda.CUresult.CUDA_SUCCESS else "elsewhere"
        raise TypeError(f"an array {where}, not on this GPU")
