"""When each thunk ran on the host."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns

from hlo2graph.backends.host.block import Step, Walk
from hlo2graph.program.thunks import Slice, Thunk


@dataclass(frozen=True, slots=True)
class Stamp:
    """One run of a thunk, from begin to end in nanoseconds."""

    thunk: Thunk[Slice]
    begin: int
    end: int


class Stamps:
    """Takes stamps around steps, on any thread."""

    def __init__(self) -> None:
        self.taken: list[Stamp] = []

    def watched(self, thunk: Thunk[Slice], step: Step) -> Step:
        """Return a step that does the same and takes a stamp."""

        def run(walk: Walk) -> None:
            begin = perf_counter_ns()
            step(walk)
            self.taken.append(Stamp(thunk, begin, perf_counter_ns()))

        return run
