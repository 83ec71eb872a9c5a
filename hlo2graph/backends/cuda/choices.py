"""What a caller can choose about running a plan on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from hlo2graph.backends.cuda.partial.policy import Policy
from hlo2graph.options import (
    MATMUL_PRECISIONS,
    POINTERS,
    TEMPORARIES,
    check_choice,
    check_rounds,
)


class GraphOptions(TypedDict, total=False):
    """How a plan becomes CUDA graphs, by keyword; each is a flag of the command line too.

    unroll_loops: which loops of a known trip count a graph holds round by round: auto (short ones),
        never, or those of at most so many rounds.
    pointers: what happens for arrays that lie elsewhere than at the call before: copy them, update
        the graph's nodes, cache a graph for each set of addresses, recapture (build the graph again
        and update the instantiated one as a whole), let kernels read addresses from a table, or
        auto, whatever costs least.
    capture: which thunks graphs hold: all; temps, those that touch no array that may move; loops:N,
        loops of a known trip count over N; kinds such as kernel,copy; -while and the like leave
        kinds out; min:N asks for graphs of N thunks at least. The others are enqueued one by one.
    temporaries: where they live: persistent, an arena of the executable's own; graph, allocated by
        the graph in front and freed behind; shared, one arena of the GPU's for all executables that
        say so, whose runs wait for each other.
    """

    unroll_loops: str
    pointers: str
    capture: str
    temporaries: str


class CudaOptions(GraphOptions, total=False):
    """All that there is to choose.

    matmul_precision: other than default it forbids TF32 in products of f32, and tensor cores in
        kernels of ours.
    instances: how many calls run side by side, two at least.
    """

    matmul_precision: str
    instances: int


@dataclass(frozen=True, slots=True)
class Choices:
    """CudaOptions with their defaults, checked."""

    matmul_precision: str = "default"
    unroll_loops: str = "auto"
    pointers: str = "copy"
    capture: str = "all"
    temporaries: str = "persistent"
    instances: int = 4

    def __post_init__(self) -> None:
        check_choice("matmul_precision", self.matmul_precision, MATMUL_PRECISIONS)
        check_rounds("unroll_loops", self.unroll_loops)
        check_choice("pointers", self.pointers, POINTERS)
        Policy.of(self.capture)
        check_choice("temporaries", self.temporaries, TEMPORARIES)
