"""Device memory of nobody's library, handed over by `__cuda_array_interface__`."""

from __future__ import annotations

import numpy as np

from hlo2graph.backends.cuda import memory
from hlo2graph.backends.cuda.driver import call


class Block:
    """Bytes on the device; views of it are arrays."""

    def __init__(self, size):
        self.memory = memory.DeviceMemory(size, "for a test")
        self.size = size

    def view(self, array, offset=0, **how):
        """Write `array` to the block; return it as an array there."""
        found = View(self, array.dtype, array.shape, offset, **how)
        found.set(array)
        return found


class View:
    def __init__(self, block, dtype, shape, offset=0, read_only=False, strides=None):
        self.block, self.dtype, self.shape = block, np.dtype(dtype), shape
        self.nbytes = self.dtype.itemsize * int(np.prod(shape, dtype=int))
        assert offset + self.nbytes <= block.size
        self.address = block.memory.address + offset
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": self.dtype.str,
            "data": (self.address, read_only),
            "strides": strides,
            "version": 3,
            "stream": None,
        }

    def set(self, array):
        array = np.ascontiguousarray(array)
        if array.nbytes:
            call(memory.cuda.cuMemcpyHtoD, self.address, array.ctypes.data, array.nbytes)
            call(memory.cuda.cuStreamSynchronize, 0)  # pageable memory may still be under way

    def get(self):
        call(memory.cuda.cuCtxSynchronize)
        return self.read()

    def read(self):
        """Return what is there now, whether or not somebody still writes it."""
        found = np.empty(self.shape, self.dtype)
        if found.nbytes:
            call(memory.cuda.cuMemcpyDtoH, found.ctypes.data, self.address, found.nbytes)
        return found


def gathered(arrays):
    """Return the contents of several, on the device or not, once all that was enqueued has run."""
    call(memory.cuda.cuCtxSynchronize)
    return tuple(array.read() if isinstance(array, View) else np.asarray(array) for array in arrays)


def put(array, offset=0, **how):
    """Return an array in a block of its own."""
    array = np.asarray(array)
    return Block(array.nbytes + offset or 1).view(array, offset, **how)
