"""DLPack, by which array libraries hand device memory to each other, through ctypes.

The structures are those of dlpack.h, without its later versioned form: every library takes the
plain one.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_char,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
    py_object,
)
from dataclasses import dataclass
from struct import Struct
from typing import Any

import ml_dtypes
import numpy as np

CPU, CUDA, CUDA_MANAGED = 1, 2, 13
NAME = b"dltensor"

# dlpack.h's codes of element types, by (code, bits).
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_OTHERS: dict[tuple[int, int], Any] = {
    (4, 16): ml_dtypes.bfloat16,
    (7, 8): ml_dtypes.float8_e3m4,
    (8, 8): ml_dtypes.float8_e4m3,
    (9, 8): ml_dtypes.float8_e4m3b11fnuz,
    (10, 8): ml_dtypes.float8_e4m3fn,
    (11, 8): ml_dtypes.float8_e4m3fnuz,
    (12, 8): ml_dtypes.float8_e5m2,
    (13, 8): ml_dtypes.float8_e5m2fnuz,
    (14, 8): ml_dtypes.float8_e8m0fnu,
}
_TYPES: dict[tuple[int, int], np.dtype[Any]] = {
    **{
        (_CODES[dtype.kind], 8 * dtype.itemsize): dtype
        for dtype in map(np.dtype, ("?", *"bhilq", *"BHILQ", *"efd", *"FD"))
    },
    **{key: np.dtype(scalar) for key, scalar in _OTHERS.items()},
}
_BY_DTYPE = {dtype: key for key, dtype in _TYPES.items()}


class _Device(ctypes.Structure):
    _fields_ = (("type", c_int32), ("id", c_int32))


class _DType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)
_Managed._fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", _Deleter))

_python = ctypes.pythonapi
_python.PyCapsule_New.restype = py_object
_python.PyCapsule_New.argtypes = (c_void_p, ctypes.c_char_p, c_void_p)
_python.PyCapsule_GetPointer.restype = c_void_p
_python.PyCapsule_GetPointer.argtypes = (py_object, ctypes.c_char_p)


def has_type(dtype: np.dtype[Any]) -> bool:
    """Tell whether DLPack has an element type."""
    return dtype in _BY_DTYPE


@dataclass(frozen=True, slots=True)
class Foreign:
    """Device memory of another library; `owner` keeps it alive."""

    address: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    owner: object


class Form:
    """What capsules of one kind of array say but for its address, to be compared as bytes."""

    __slots__ = ("_dims", "_head", "_is_row_major", "_numbers", "_steps")

    def __init__(
        self,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        device: tuple[int, int],
    ) -> None:
        code, bits = _BY_DTYPE.get(dtype, (0, 0))  # no capsule has an element type of no bits
        rank = len(shape)
        self._head = _HEAD.pack(*device, rank, code, bits, 1)
        self._numbers = c_char * (8 * rank)
        self._dims = bytes((c_int64 * rank)(*shape))
        self._steps = bytes((c_int64 * rank)(*(s // dtype.itemsize for s in strides)))
        self._is_row_major = strides == row_major(shape, dtype.itemsize)

    def address(self, capsule: object) -> int | None:
        """Return where the array of a capsule lies, None if it says anything but that."""
        place = _python.PyCapsule_GetPointer(capsule, NAME)
        data, head, dims, steps, offset = _TENSOR.unpack(_Bytes.from_address(place).raw)
        if head != self._head:
            return None
        if self._dims:
            numbers = self._numbers
            if numbers.from_address(dims).raw != self._dims:
                return None
            if steps and numbers.from_address(steps).raw != self._steps:
                return None
        return data + offset if steps or self._is_row_major else None


_HEAD = Struct("@iiiBBH")  # the device to the element type of a _Tensor
_TENSOR = Struct(f"@P{_HEAD.size}sPPQ")
_Bytes = c_char * ctypes.sizeof(_Tensor)
assert _TENSOR.size == ctypes.sizeof(_Tensor)


def read_capsule(capsule: object) -> Foreign:
    """Return what a DLPack capsule describes; the capsule stays unconsumed and frees it later.

    Raises:
        TypeError: it holds an element type that HLO does not have.
    """
    tensor = ctypes.cast(
        _python.PyCapsule_GetPointer(capsule, NAME), POINTER(_Managed)
    ).contents.tensor
    key = (tensor.dtype.code, tensor.dtype.bits)
    if key not in _TYPES or tensor.dtype.lanes != 1:
        raise TypeError(f"DLPack type code {key[0]} of {key[1]} bits")
    dtype = _TYPES[key]
    shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(dtype.itemsize * tensor.strides[k] for k in range(tensor.ndim))
    else:
        strides = row_major(shape, dtype.itemsize)
    address = int(tensor.data or 0) + int(tensor.byte_offset)
    return Foreign(address, dtype, shape, strides, capsule)


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the byte strides of a row-major array."""
    strides, step = [], itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


_exported: dict[int, Export] = {}  # what a consumer is not done with, by its structure's address


def _release(place: int, exported: dict[int, Export] = _exported) -> None:
    """Let go of what a consumer is done with; at the interpreter's end no global is there."""
    export = exported.pop(place, None)
    if export is not None:
        export.owner = None


# A destructor's capsule has no reference left to count, so it comes as an address.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))


def _drop(capsule: int) -> None:
    """Free what a capsule that nobody consumed holds."""
    if _is_valid(capsule, NAME):
        _release(_pointer(capsule, NAME))


_DELETER, _DESTRUCTOR = _Deleter(_release), ctypes.PYFUNCTYPE(None, c_void_p)(_drop)
_DROP = ctypes.cast(_DESTRUCTOR, c_void_p)


class Export:
    """Memory on `device` (its kind, its number) as others take it, to be handed out repeatedly.

    `owner` keeps the memory alive while somebody has it; it is None when nobody does.
    """

    __slots__ = ("_dims", "_managed", "_place", "_steps", "owner")

    def __init__(
        self,
        address: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        device: tuple[int, int],
    ) -> None:
        """Describe the memory; raises BufferError where DLPack has no such element type."""
        if dtype not in _BY_DTYPE:
            raise BufferError(f"DLPack has no type for {dtype.name}")
        code, bits = _BY_DTYPE[dtype]
        rank, numbers = len(shape), c_int64 * max(len(shape), 1)
        self._dims = numbers(*shape)
        self._steps = numbers(*(s // dtype.itemsize for s in strides))
        self._managed = managed = _Managed()
        managed.tensor = _Tensor(address, _Device(*device), rank, _DType(code, bits, 1))
        managed.tensor.shape = ctypes.cast(self._dims, POINTER(c_int64))
        managed.tensor.strides = ctypes.cast(self._steps, POINTER(c_int64))
        managed.deleter = _DELETER
        self._place = ctypes.addressof(managed)
        self.owner: object = None

    def capsule(self, owner: object) -> object:
        """Hand it out; nobody may have it yet."""
        assert self.owner is None, "this memory is handed out already"
        self.owner = owner
        _exported[self._place] = self
        return _python.PyCapsule_New(self._place, NAME, _DROP)


def make_capsule(
    address: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    device: tuple[int, int],
    owner: object,
) -> object:
    """Return a capsule for memory on `device` (its kind, its number) that `owner` keeps alive.

    Raises:
        BufferError: DLPack has no such element type.
    """
    return Export(address, dtype, shape, strides, device).capsule(owner)
