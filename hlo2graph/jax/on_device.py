"""Calls on the GPU: arrays of JAX's are read where they lie, and results become such arrays.

Nothing is copied: an argument is its address, and its memory stays until the call has run; a result
is made in memory that JAX then has. A donated argument is taken from JAX, and the result that takes
its place is made there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jaxlib import _jax

from hlo2graph.backends.cuda import dlpack
from hlo2graph.backends.cuda.blocks import Blocks
from hlo2graph.backends.cuda.device_array import DeviceArray, let_wait
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.jax.leaves import ARRAY, finished, is_key
from hlo2graph.jax.lowering import Lowered


class DeviceCalls:
    """Calls of a CUDA executable, with arrays of JAX's as leaves."""

    def __init__(self, executable: CudaExecutable, lowered: Lowered, device: Any) -> None:
        self.executable = executable
        self._device = device
        self._stream = executable.stream
        self._theirs = stream_of(device)
        self._blocks = Blocks(executable.device)
        nowhere = [
            DeviceArray(0, bound.shape, executable.device, self._stream, None)
            for bound in (*executable.plan.inputs, *executable.plan.outputs)
        ]
        count, first = len(executable.plan.inputs), len(lowered.constants)
        self._inputs, self._outputs = nowhere[first:count], nowhere[count:]
        self._sizes = [bound.slice.size for bound in executable.plan.outputs]
        self._constants = [
            self._at_home(jax.device_put(value, device), template)
            for value, template in zip(lowered.constants, nowhere, strict=False)
        ]
        self._results = lowered.results
        self._is_plain = [not is_key(aval) and not aval.weak_type for aval in lowered.results]
        self._donated = lowered.donated
        self._in_place = _in_place(executable, first)
        self._place = (dlpack.CUDA, executable.device.ordinal)

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Run once; return the result leaves, which need not have been computed yet."""
        args = [
            self._at_home(leaf, template) if type(leaf) is ARRAY else leaf
            for leaf, template in zip(leaves, self._inputs, strict=True)
        ]
        for position in self._donated:
            if type(leaves[position]) is ARRAY:
                args[position] = self._stolen(leaves[position], args[position])
        out = [self._wanted(position, args) for position in range(len(self._outputs))]
        self.executable.run([*self._constants, *args], out=out)
        if out:
            let_wait(self._theirs, out[0].stream.handle)
        return [self._handed(array, k) for k, array in enumerate(out)]

    def _at_home(self, array: Any, template: DeviceArray) -> DeviceArray:
        """Return an array as the memory that it has on our device; our stream waits for it."""
        if not array.is_ready():
            exported(array, self._stream)
        return template.at(array.unsafe_buffer_pointer(), array)

    def _stolen(self, array: Any, own: DeviceArray) -> DeviceArray:
        """Take the memory of an array, which is deleted."""
        capsule = exported(array, self._stream)
        array.delete()
        return own.at(own.address, capsule)

    def _wanted(self, position: int, args: Sequence[Any]) -> DeviceArray:
        """Return where a result is to be: where the argument was that it replaces, or anew."""
        donor = self._in_place.get(position)
        given = args[donor] if donor is not None and donor in self._donated else None
        if type(given) is DeviceArray:
            return given
        size = self._sizes[position]
        doing = f"allocating {size:,} bytes for result {position}"
        block = self._blocks.give(size, self._stream, doing)
        return self._outputs[position].at(block.address, block)

    def _handed(self, array: DeviceArray, position: int) -> Any:
        """Return a result as an array of JAX's."""
        capsule = dlpack.make_capsule(
            array.address, array.dtype, array.shape, array.strides, self._place, array
        )
        found = _jax.dlpack_managed_tensor_to_buffer(capsule, self._device, self._theirs)
        return found if self._is_plain[position] else finished(found, self._results[position])


def stream_of(device: Any) -> int:
    """Return the stream on which JAX expects what others made to be ready."""
    found: int = device.get_stream_for_external_ready_events()
    return found


def exported(array: Any, stream: Stream) -> object:
    """Return a capsule that keeps the memory of an array; `stream` waits for what writes it."""
    return array.__dlpack__(stream=int(stream))


def _in_place(executable: CudaExecutable, first: int) -> dict[int, int]:
    """Return the positions of results that take the place of arguments, with those arguments'."""
    plan = executable.plan
    donors = {plan.inputs[k].slice.allocation: k - first for k in plan.donated}
    return {
        position: donors[bound.slice.allocation]
        for position, bound in enumerate(plan.outputs)
        if bound.slice.allocation in donors
    }
