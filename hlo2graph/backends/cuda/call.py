"""Calls of an executable: arrays of any library in, checked each time; results out.

Arguments that came together at an earlier call and cannot have changed since are recognised: device
arrays of ours, and JAX's of the last call. Any other is read anew: its owner may have moved it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsInt, TypeAlias

import numpy as np

from hlo2graph.backends.arguments import FOREIGN, check_argument, check_arguments
from hlo2graph.backends.cuda.device_array import (
    DeviceArray,
    Taker,
    gpu_of,
    is_of_jax,
    is_writable,
    let_wait,
)
from hlo2graph.backends.cuda.driver import Device
from hlo2graph.backends.cuda.instance import Call, Instance
from hlo2graph.backends.cuda.memory import DeviceMemory, Stream, read_array
from hlo2graph.backends.cuda.route import Brought, Route
from hlo2graph.errors import InputError
from hlo2graph.ops.spec import Array
from hlo2graph.program.plan import Plan

Out: TypeAlias = str | Sequence[object] | None
FRESH = "fresh"


@dataclass(slots=True)
class Arguments:
    """What one call's arguments turned out to be; see Call."""

    addresses: list[int | None] = field(default_factory=list)
    on_host: dict[int, Array] = field(default_factory=dict)
    owners: list[object] = field(default_factory=list)
    deletable: list[Any] = field(default_factory=list)
    is_still: bool = True

    def run_straight(
        self, instance: Instance, args: tuple[object, ...], fresh: bool
    ) -> tuple[DeviceArray, ...] | None:
        """Run with these if all are on the device and nothing is copied; see Instance."""
        addresses = [at for at in self.addresses if at is not None]
        if not addresses or self.on_host:
            return None
        return instance.run_straight(
            args,
            addresses,
            self.owners,
            fresh=fresh,
            is_still=self.is_still,
            deletable=self.deletable,
        )


class ArgumentReader:
    """Reads the arguments of a program's calls."""

    def __init__(self, plan: Plan, device: Device) -> None:
        self._leaves = plan.inputs
        self._takers = [
            Taker(leaf, f"input {position}", device) for position, leaf in enumerate(plan.inputs)
        ]

    def __call__(self, args: Sequence[Any], stream: Stream) -> Arguments:
        """Return where the arguments are; `stream` waits for what still writes them.

        Raises:
            InputError: their number is wrong, or one has another type, shape or layout, or is on
                another device.
        """
        if len(args) != len(self._leaves):
            check_arguments(args, self._leaves)  # says what is wrong
        found = Arguments()
        for position, (arg, leaf) in enumerate(zip(args, self._leaves, strict=True)):
            if type(arg) is DeviceArray and (arg.layout is leaf.shape or arg.layout == leaf.shape):
                if arg.stream is not stream:
                    let_wait(int(stream), arg.stream.handle)
                    found.is_still = False
                found.addresses.append(arg.address)
                found.owners.append(arg)
            elif (lent := self._lent(arg, position, stream)) is not None:
                address, owner = lent
                found.addresses.append(address)
                found.owners += (owner, arg)
                if is_of_jax(arg):
                    found.deletable.append(arg)
                else:
                    found.is_still = False
            else:
                found.on_host[position] = check_argument(arg, leaf, position)
                found.addresses.append(None)
                found.is_still = False
        return found

    def _lent(self, arg: Any, position: int, stream: Stream) -> tuple[int, object] | None:
        """Return where an array of another library lies and what owns it, None if on the host."""
        take = self._takers[position]
        if is_of_jax(arg) and (lent := take.at_once(arg)) is not None:
            return lent
        gpu = gpu_of(arg)
        return None if gpu is None else take(arg, gpu, stream)


class Outputs:
    """Where the results of one call are wanted: at home, in fresh memory, in given arrays."""

    def __init__(self, plan: Plan, out: Out, device: Device, stream: Stream) -> None:
        """Read `out`.

        Raises:
            InputError: `out` is neither None, fresh nor an array or None for each result, or one
                of its arrays does not fit, or cannot be written.
        """
        self._plan, self._device, self._stream = plan, device, stream
        count = len(plan.outputs)
        self.addresses: list[int | None] = []
        self.owners: list[object] = []
        self.given: list[Any] = [None] * count
        self._is_asked = out is not None
        if out is None:
            self.addresses = self.given
            return
        if not (out == FRESH if isinstance(out, str) else isinstance(out, Iterable)):
            raise InputError(f"out is fresh, or an array or None for each result, not {out!r}")
        self.given = self.given if isinstance(out, str) else list(out)
        if len(self.given) != count:
            raise InputError(f"out has {len(self.given)} arrays; the program has {count} results")
        for position, array in enumerate(self.given):
            self.addresses.append(self._address(position, array, is_fresh=out == FRESH))

    def _address(self, position: int, array: Any, *, is_fresh: bool) -> int | None:
        leaf = self._plan.outputs[position]
        if type(array) is DeviceArray and array.layout is leaf.shape:
            if array.stream is not self._stream:
                let_wait(int(self._stream), array.stream.handle)
                array.pass_to(self._stream)
            self.owners.append(array)
            return array.address
        if isinstance(array, np.ndarray):
            self._check_host(position, array)
            return None
        if array is not None:
            gpu = gpu_of(array)
            if gpu is None or not is_writable(array):
                raise InputError(
                    f"result {position} ({leaf.name}) goes to an array that can be "
                    f"written, not to {type(array).__name__}"
                )
            take = Taker(leaf, f"result {position}", self._device)
            address, owner = take(array, gpu, self._stream)
            if isinstance(array, DeviceArray):
                array.pass_to(self._stream)
            self.owners += (owner, array)
            return address
        if not is_fresh:
            return None
        size = leaf.slice.size
        block = DeviceMemory(
            size, f"allocating {size:,} bytes for result {leaf.name}", self._plan.name
        )
        self.given[position] = DeviceArray(
            block.address, leaf.shape, self._device, self._stream, block
        )
        self.owners.append(block)
        return block.address

    def _check_host(self, position: int, array: Array) -> None:
        leaf = self._plan.outputs[position]
        dtype, shape = leaf.shape.dtype.numpy, leaf.shape.dims
        if array.dtype != dtype or array.shape != shape or not array.flags.writeable:
            order = "" if array.dtype.isnative else " in the other byte order"
            kind = "" if array.flags.writeable else "read-only "
            raise InputError(
                f"result {position} ({leaf.name}) goes to a writable array of {dtype.name}"
                f"{list(shape)}, got {kind}{array.dtype.name}{list(array.shape)}{order}"
            )

    def collect(self, route: Route, instance: Instance, args: Sequence[object]) -> tuple[Any, ...]:
        """Return the results after the call was enqueued; those for the host are waited for."""
        own = instance.results(self._stream)
        if not self._is_asked and route.results is instance.home_results:
            return own
        found: list[Any] = []
        for position, (array, at) in enumerate(zip(self.given, route.results, strict=True)):
            if isinstance(array, np.ndarray):
                self._stream.synchronize("waiting for a result")
                array[...] = read_array(at, self._plan.outputs[position].shape)
                found.append(array)
            elif array is not None:
                found.append(array)
            elif at == own[position].address:
                found.append(own[position])
            else:  # in an argument that was donated for it
                leaf, home = self._plan.outputs[position], _home(args[route.inputs.index(at)])
                found.append(DeviceArray(at, leaf.shape, self._device, self._stream, home))
        return tuple(found)


def _home(arg: object) -> object:
    """Return what keeps an argument's memory alive, and not what it was made from."""
    return arg.home if type(arg) is DeviceArray else arg


def in_order(args: object) -> tuple[object, ...]:
    """Return arguments that came as another sequence.

    Raises:
        InputError: they are no sequence.
    """
    if not isinstance(args, Iterable):
        raise InputError(f"the arguments are a sequence of arrays, not {type(args).__name__}")
    return tuple(args)


def stream_handle(given: Any) -> int:
    """Return the handle of a stream, given by it or as an object with `__cuda_stream__`.

    Raises:
        InputError: it is neither.
    """
    try:
        number = given.__cuda_stream__()[1] if hasattr(given, "__cuda_stream__") else given
        handle = int(number) if isinstance(number, SupportsInt) else -1
    except FOREIGN:
        handle = -1
    if not 0 <= handle < 1 << 64 or isinstance(given, float):
        raise InputError(f"stream is a handle or has __cuda_stream__, not {given!r}")
    return handle


def donated_positions(
    donate: bool | Collection[int], possible: Sequence[int], count: int
) -> tuple[int, ...]:
    """Return the inputs that a call may overwrite: all that are `possible`, or those named.

    Raises:
        InputError: there is no such input, the program has `count`; or it names none at all.
    """
    if isinstance(donate, bool):
        return tuple(possible) if donate else ()
    if not isinstance(donate, Collection):
        raise InputError(f"donate is true, false or positions of inputs, not {donate!r}")
    for position in donate:
        if position not in range(count):
            raise InputError(f"donate names input {position!r}; the program has {count}")
    return tuple(k for k in possible if k in donate)


def described(
    args: tuple[object, ...], found: Arguments, outputs: Outputs, donated: tuple[int, ...]
) -> Call:
    """Return the call that an instance runs."""
    brought = Brought(tuple(found.addresses), tuple(outputs.addresses), donated)
    is_still = found.is_still and bool(args) and not outputs.owners and not donated
    owners = [*found.owners, *outputs.owners]
    return Call(brought, found.on_host, owners, args, is_still, found.deletable)
