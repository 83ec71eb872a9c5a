"""Buffer assignment: every value of a Program gets its bytes.

In: a Program after `place_copies`. Out: allocations, and a slice for each value. Each parameter,
constant and result has an allocation of its own; all else lives in one arena. Two values share
bytes for free only if data flow alone already orders every use of the first before the second is
born, so that by default sharing takes no concurrency away; how much more is shared is chosen with
`memory_budget` and `max_buffer_reuse`, and then `labels` names the values whose place adds edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hlo2graph.errors import InputError
from hlo2graph.program.buffers.budget import UNLIMITED, choose
from hlo2graph.program.buffers.model import Model, build_model, peak
from hlo2graph.program.buffers.place import Placement
from hlo2graph.program.edges import SERIALIZE
from hlo2graph.program.plan import Allocation, AllocationKind, ArenaSize
from hlo2graph.program.thunks import Hazard, Program, Slice, Value


@dataclass(frozen=True, slots=True)
class BufferAssignment:
    """Where every value lives.

    slices: by value id.
    labels: REUSE or INPLACE by the id of a value that shares bytes at the price of an edge.
    aliases: whether each input-output alias is honoured; a line each.
    """

    allocations: tuple[Allocation, ...]
    slices: Mapping[int, Slice]
    labels: Mapping[int, Hazard]
    arena: ArenaSize
    aliases: tuple[str, ...] = ()


def assign_buffers(
    program: Program,
    *,
    memory_budget: int | None = None,
    max_buffer_reuse: int = 0,
    schedule: str = "concurrent",
) -> BufferAssignment:
    """Return where every value of `program` lives.

    memory_budget: bytes that the arena may take. Where the default takes more, just as much is
        reused out of order as fits. Raises InputError where nothing does.
    max_buffer_reuse: how often the bytes of a buffer may go to a value that data flow does not
        order after the last; -1 any number of times.
    schedule: serialize runs thunks in program order, in which any reuse is free.
    """
    if max_buffer_reuse < UNLIMITED:
        raise InputError(f"max buffer reuse is a number of times, or -1; got {max_buffer_reuse}")
    if memory_budget is not None and memory_budget < 0:
        raise InputError(f"a memory budget is a number of bytes; got {memory_budget}")
    model = build_model(program, schedule == SERIALIZE)
    return assignment_of(program, model, choose(model, memory_budget, max_buffer_reuse))


def assignment_of(program: Program, model: Model, placement: Placement) -> BufferAssignment:
    """Return where every value lives if the arena's buffers go where `placement` has them."""
    allocations, slices = _allocate(program, model, placement)
    return BufferAssignment(
        allocations,
        slices,
        {**model.labels, **dict.fromkeys(placement.reused, Hazard.REUSE)},
        ArenaSize(placement.size, peak(model)[0], model.unshared),
        model.aliases,
    )


def _allocate(
    program: Program, model: Model, placement: Placement
) -> tuple[tuple[Allocation, ...], dict[int, Slice]]:
    allocations: list[Allocation] = []
    slices: dict[int, Slice] = {}

    def own(allocation: Allocation, value: Value) -> None:
        if value.id not in slices:
            _home(model.buffers.of[value.id].members, len(allocations), 0, allocation.size)
            allocations.append(allocation)

    def _home(members: Iterable[int], index: int, offset: int, size: int) -> None:
        slices.update((member, Slice(index, offset, size)) for member in members)

    for value, port in zip(program.body.params, program.inputs, strict=True):
        own(Allocation(value.shape.size, AllocationKind.PARAMETER, port.name), value)
    for value, literal in program.constants:
        own(Allocation(value.shape.size, AllocationKind.CONSTANT, value.origin, literal), value)
    for value, port in zip(program.body.results, program.outputs, strict=True):
        own(Allocation(value.shape.size, AllocationKind.LIVE_OUT, port.name), value)
    for temp in model.temps:
        offset = placement.offsets.get(temp.order, 0)
        _home(temp.buffer.members, len(allocations), offset, temp.buffer.size)
    if model.temps:
        allocations.append(Allocation(placement.size, AllocationKind.TEMP))
    return tuple(allocations), slices
