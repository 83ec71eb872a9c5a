"""Placements from the least memory to the most concurrency: points of one curve.

At one end program order alone decides, as it does in XLA's mode LHS: any reuse is free, for thunks
run one after the other. At the other end only what data flow orders shares bytes, as in XLA's mode
CONCURRENT. Between them bytes are handed over early, at the price of edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo2graph.program.buffers.assign import BufferAssignment, assignment_of
from hlo2graph.program.buffers.budget import UNLIMITED, choose
from hlo2graph.program.buffers.model import build_model, peak
from hlo2graph.program.buffers.pack import pack
from hlo2graph.program.buffers.place import Placement, Policy, place
from hlo2graph.program.edges import SERIALIZE
from hlo2graph.program.thunks import Program

CONCURRENT = "concurrent"
SERIAL, DEFAULT, APART = "serial", "default", "apart"


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One way to place the buffers: its name, and the schedule that its edges are for.

    serial: by program order, for a chain.
    packed: by program order, for a graph: the least that a graph can do with, or nearly.
    reuse any, reuse 1: bytes handed over early any number of times, or once.
    half: any reuse, once the arena has grown half way from what is alive at once to default.
    default: only where data flow orders it.
    apart: no bytes twice, but what is written in place.
    """

    name: str
    schedule: str
    buffers: BufferAssignment


def sweep_buffers(program: Program) -> Iterator[SweepPoint]:
    """Yield the points, from the least memory to the most but for what reuse makes of it."""
    serial = build_model(program, serial=True)
    yield SweepPoint(SERIAL, SERIALIZE, assignment_of(program, serial, choose(serial, None, 0)))
    model = build_model(program, serial=False)
    free = place(model, Policy())
    half = (peak(model)[0] + free.size) // 2
    for name, policy in (
        ("packed", Policy(UNLIMITED, offsets=pack(model))),
        ("reuse any", Policy(UNLIMITED)),
        ("reuse 1", Policy(1)),
        ("half", Policy(UNLIMITED, half)),
    ):
        placement = place(model, policy)
        yield SweepPoint(name, CONCURRENT, assignment_of(program, model, placement))
    yield SweepPoint(DEFAULT, CONCURRENT, assignment_of(program, model, free))
    offsets, size = {}, 0
    for temp in model.temps:
        offsets[temp.order] = size
        size += temp.size
    apart = Placement(offsets, size, set(), free.path)
    yield SweepPoint(APART, CONCURRENT, assignment_of(program, model, apart))
