"""Calls on the GPU: arrays of JAX's are read where they lie, and results become such arrays.

Nothing is copied: an argument is its address, and its memory stays until the call has run; a result
is made in a block of ours that JAX then has, until it drops the array.

A donated argument that was a result of ours is gone after the call, as with `jax.jit`; if JAX has
nothing more to do with it, the result that takes its place is made in the same block. Memory that
is JAX's own is left alone: nothing tells what JAX still reads there.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any
from weakref import ref

import jax
import numpy as np
from jaxlib import _jax

from hlo2graph.backends.cuda import dlpack
from hlo2graph.backends.cuda.blocks import Block, Blocks
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import Stream, strides_of
from hlo2graph.backends.cuda.relay import Relay
from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import Shape
from hlo2graph.jax.leaves import ARRAY, finished, is_key
from hlo2graph.jax.lowering import Lowered

MOST_PLACES = 1024  # of results and of arguments that are known again, before any is forgotten


class Place:
    """Memory that a result can be in, and how JAX takes it."""

    __slots__ = ("export", "stream")

    def __init__(self, export: dlpack.Export) -> None:
        self.export = export
        self.stream = 0  # the handle of what the result is made on


_places: dict[int, Place] = {}  # by address, of all functions; of some the memory is gone
_row_major: set[Any] = set()  # layouts


class DeviceCalls:
    """Calls of a CUDA executable, with arrays of JAX's as leaves."""

    def __init__(self, executable: CudaExecutable, lowered: Lowered, device: Any) -> None:
        """Prepare calls; raises UnsupportedError where JAX could not take a result over."""
        plan = executable.plan
        self.executable = executable
        self._device = device
        self._stream = executable.stream
        self._number = int(executable.stream)
        self._ready_on = stream_of(device)
        self._kept: list[object] = []  # the arrays of JAX's own that the last call was given
        self._where: dict[int, tuple[ref[Any], int]] = {}  # such arrays and their places, by id
        self._relays: dict[Stream, tuple[Relay, int]] = {}
        self._blocks = Blocks(executable.device, self._stream)
        self._place = (dlpack.CUDA, executable.device.ordinal)
        self._constants = [jax.device_put(value, device) for value in lowered.constants]
        self._outputs = [bound.shape for bound in plan.outputs]
        for position, shape in enumerate(self._outputs):
            if not dlpack.has_type(shape.dtype.numpy):
                raise UnsupportedError(f"result {position} is {shape.dtype}, which DLPack has not")
        self._known: list[dict[int, Place]] = [{} for _ in plan.outputs]
        self._results = [
            None if not is_key(aval) and not aval.weak_type else aval for aval in lowered.results
        ]
        self._donated = lowered.donated
        self._in_place = _in_place(executable, len(lowered.constants))

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Run once; return the result leaves, which need not have been computed yet."""
        args = [*self._constants, *leaves]
        on_host: dict[int, Any] = {}
        inputs: list[int | None] = []
        theirs: list[object] = []  # what keeps memory of JAX's alive
        for position, arg in enumerate(args):
            known = self._where.get(id(arg))
            found = None if known is None else known[0]()
            if known and found is not None and found is arg and not found.is_deleted():
                inputs.append(known[1])
                theirs.append(arg)
                continue
            address = self._address(arg, theirs) if type(arg) is ARRAY else None
            inputs.append(address)
            if address is None:
                on_host[position] = np.asarray(arg)
        taken: dict[int, Block] = {}
        if self._donated:
            taken = self._deleted(leaves, inputs[len(self._constants) :])
        blocks = [self._block(k, taken) for k in range(len(self._outputs))]
        outputs = [block.address for block in blocks]
        kept = self._kept
        if len(theirs) != len(kept) or not all(map(is_, theirs, kept)):
            kept = self._kept = theirs
        used = self.executable.run_at(inputs, outputs, on_host, kept)
        relay, number = self._relays.get(used) or self._new_relay(used)
        relay()
        return [self._handed(block, k, number) for k, block in enumerate(blocks)]

    def _new_relay(self, used: Stream) -> tuple[Relay, int]:
        number = int(used)
        made = self._relays[used] = Relay(self._ready_on, number), number
        return made

    def _address(self, array: Any, theirs: list[object]) -> int | None:
        """Return where an array is, None if not row by row; our stream waits for what writes it."""
        address: int = array.unsafe_buffer_pointer()
        place = _places.get(address)
        if place is None or place.export.owner is None:
            if array._pjrt_layout not in _row_major and not _is_row_major(array):
                return None
            self._know(array, address)
            theirs.append(array)
            place = None
        if not array.is_ready() and (place is None or place.stream != self._number):
            exported(array, self._stream)
        return address

    def _know(self, array: Any, address: int) -> None:
        """Find an array again as long as it lives."""
        if len(self._where) >= MOST_PLACES:
            alive = {k: v for k, v in self._where.items() if v[0]() is not None}
            self._where = alive if len(alive) < MOST_PLACES // 2 else {}
        self._where[id(array)] = ref(array), address

    def _deleted(self, leaves: Sequence[Any], addresses: Sequence[int | None]) -> dict[int, Block]:
        """Delete donated results of ours; return the blocks that are ours again, by leaf."""
        taken: dict[int, Block] = {}
        for position in self._donated:
            array, address = leaves[position], addresses[position]
            if address is None:
                continue
            place = _places.get(address)
            block = None if place is None else place.export.owner
            if place is None or not isinstance(block, Block):
                continue
            array.delete()
            if place.export.owner is None:  # JAX has dropped it, so nothing there waits to read it
                taken[position] = block
        if taken:
            self._blocks.after_all()
        return taken

    def _block(self, position: int, taken: dict[int, Block]) -> Block:
        """Return where a result is to be: where the argument was that it replaces, or elsewhere."""
        donor = self._in_place.get(position)
        if donor is not None and donor in taken:
            return taken[donor]
        size = self._outputs[position].size
        doing = f"allocating {size:,} bytes for result {position}"
        return self._blocks.give(size, doing)

    def _handed(self, block: Block, position: int, number: int) -> Any:
        """Return a result as an array of JAX's; `number` is the stream that it is made on."""
        known = self._known[position]
        place = known.get(block.address)
        if place is None:
            place = self._new_place(block.address, self._outputs[position], known)
        place.stream = number
        _places[block.address] = place
        found = _jax.dlpack_managed_tensor_to_buffer(
            place.export.capsule(block), self._device, self._ready_on
        )
        aval = self._results[position]
        return found if aval is None else finished(found, aval)

    def _new_place(self, address: int, shape: Shape, known: dict[int, Place]) -> Place:
        if len(known) >= MOST_PLACES:
            known.clear()
        if len(_places) >= MOST_PLACES:
            for old in [at for at, place in _places.items() if place.export.owner is None]:
                del _places[old]
        export = dlpack.Export(
            address, shape.dtype.numpy, shape.dims, strides_of(shape), self._place
        )
        place = known[address] = Place(export)
        return place


def _is_row_major(array: Any) -> bool:
    """Tell whether an array is laid out as all are unless another layout is asked for."""
    found: bool = array.format.layout.major_to_minor == tuple(range(array.ndim))
    if found:
        _row_major.add(array._pjrt_layout)
    return found


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
