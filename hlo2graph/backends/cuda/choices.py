"""What a caller can choose about running a plan on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class CudaOptions(TypedDict, total=False):
    """The choices, by keyword.

    matmul_precision: other than default it forbids TF32 in products of f32, and tensor cores in
        kernels of ours.
    unroll_loops: auto, never or a number: loops of a known trip count up to it are written out in
        the graph.
    pointers: what happens where arrays lie elsewhere than at the call before: copy, update, cache,
        recapture, table or auto; see `pointers`.
    capture: which thunks graphs hold, if not all; see `partial.policy`.
    temporaries: where they live: persistent, graph or shared; see `temporaries`.
    instances: how many calls run side by side, two at least.
    """

    matmul_precision: str
    unroll_loops: str
    pointers: str
    capture: str
    temporaries: str
    instances: int


@dataclass(frozen=True, slots=True)
class Choices:
    """CudaOptions with their defaults."""

    matmul_precision: str = "default"
    unroll_loops: str = "auto"
    pointers: str = "copy"
    capture: str = "all"
    temporaries: str = "persistent"
    instances: int = 4
