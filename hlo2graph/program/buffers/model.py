"""What placing the arena's buffers needs to know of a program, worked out once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hlo2graph.program.buffers.classes import Buffer, Buffers, structural_buffers
from hlo2graph.program.buffers.donate import Donor
from hlo2graph.program.buffers.lifetimes import InPlace, Lifetimes
from hlo2graph.program.buffers.overwrite import InPlaceMerger
from hlo2graph.program.buffers.scopes import Uses, find_uses
from hlo2graph.program.order import DataOrder, PartialOrder
from hlo2graph.program.plan import ALIGNMENT, AllocationKind
from hlo2graph.program.thunks import Hazard, Program


def aligned(size: int) -> int:
    """Return the multiple of ALIGNMENT that holds `size` bytes."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(slots=True, eq=False)
class Temp:
    """A buffer of the arena: its scope, and when that scope's thunks use it.

    `first` is the value it is born with.
    """

    buffer: Buffer
    scope: int
    born: int
    last: int
    times: tuple[int, ...]
    first: int
    size: int
    order: int = 0  # its number in order of birth


@dataclass(slots=True)
class Model:
    """A program's buffers, and for each scope who must wait for whom whatever the placement."""

    uses: Uses
    buffers: Buffers
    predecessors: list[list[tuple[int, ...]]]
    temps: list[Temp]
    unshared: int  # bytes of the arena without in-place and reuse
    labels: dict[int, Hazard]
    aliases: tuple[str, ...]
    serial: bool
    births: dict[tuple[int, int], list[Temp]] = field(default_factory=dict)
    deaths: dict[tuple[int, int], list[Temp]] = field(default_factory=dict)
    occupied: frozenset[int] = frozenset()  # scopes that have buffers of their own, or inside


def build_model(program: Program, serial: bool) -> Model:
    """Decide which values share a buffer; `serial` makes every sequence a chain."""
    uses = find_uses(program)
    buffers = structural_buffers(program, uses)
    in_place = InPlace(program.computations)
    lifetimes = Lifetimes(uses, in_place)
    orders = [_order(uses, scope, buffers, serial) for scope in range(len(uses.scopes))]
    unshared = sum(aligned(b.size) for b in buffers.all() if b.kind is AllocationKind.TEMP)
    donor = Donor(program, buffers, lifetimes, orders)
    donor.run()
    merger = InPlaceMerger(uses, buffers, lifetimes, in_place, orders)
    merger.run()
    predecessors = [list(order.predecessors) for order in orders]
    for handover in donor.added.union(*merger.added.values()):
        row = predecessors[handover.scope]
        row[handover.later] = (*row[handover.later], handover.earlier)
    temps = [_temp(uses, b) for b in buffers.all() if b.kind is AllocationKind.TEMP]
    labels = dict.fromkeys(merger.added.keys() | donor.labelled, Hazard.INPLACE)
    model = Model(uses, buffers, predecessors, temps, unshared, labels, tuple(donor.lines), serial)
    _index(model)
    return model


def _order(uses: Uses, scope: int, buffers: Buffers, serial: bool) -> PartialOrder:
    thunks = uses.scopes[scope].sequence.thunks
    if not serial:
        return DataOrder(thunks, key=lambda value: buffers.of[value].members[0])
    chain = PartialOrder()
    for at in range(len(thunks)):
        chain.join(range(max(0, at - 1), at))
    return chain


def _temp(uses: Uses, buffer: Buffer) -> Temp:
    homes = {uses.home[value] for value in buffer.members}
    scope = min(homes)
    for home in homes:
        scope = uses.common(scope, home)
    first, born = buffer.members[0], uses.scopes[scope].end
    times: set[int] = set()
    for value in buffer.members:
        seen = uses.seen_from(value, scope)
        if seen[0] < born:
            first, born = value, seen[0]
        times.update(seen)
    assert born >= 0, "only parameters and constants are there before the first thunk"
    used = tuple(sorted(times))
    return Temp(buffer, scope, born, used[-1], used, first, aligned(buffer.size))


def _index(model: Model) -> None:
    model.temps.sort(key=lambda t: (t.scope, t.born, -t.size))
    occupied: set[int] = set()
    for number, temp in enumerate(model.temps):
        temp.order = number
        model.births.setdefault((temp.scope, temp.born), []).append(temp)
        model.deaths.setdefault((temp.scope, temp.last), []).append(temp)
        scope = temp.scope
        while scope >= 0 and scope not in occupied:
            occupied.add(scope)
            scope = model.uses.scopes[scope].parent
    model.occupied = frozenset(occupied)


def peak(model: Model) -> tuple[int, list[Temp]]:
    """Return the most bytes live at once in program order, and what is then live."""
    best, held = _peak_of(model, 0)
    return best, held


def _peak_of(model: Model, scope: int) -> tuple[int, list[Temp]]:
    live: dict[int, Temp] = {}
    size, best, held = 0, 0, list[Temp]()
    for at in range(model.uses.scopes[scope].end):
        for temp in model.births.get((scope, at), ()):
            live[temp.order] = temp
            size += temp.size
        inner_size, inner = max(_inner_peaks(model, scope, at), key=lambda p: p[0])
        if size + inner_size > best:
            best, held = size + inner_size, [*live.values(), *inner]
        for temp in model.deaths.get((scope, at), ()):
            del live[temp.order]
            size -= temp.size
    return best, held


def _inner_peaks(model: Model, scope: int, at: int) -> Iterator[tuple[int, list[Temp]]]:
    yield 0, []
    for child in model.uses.scopes[scope].children.get(at, ()):
        if child in model.occupied:
            yield _peak_of(model, child)
