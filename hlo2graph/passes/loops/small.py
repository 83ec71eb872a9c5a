"""Which computations take a device so little time that running them in vain is worth a decision.

A loop's round and a branch cost several microseconds beside what is in them; a kernel on small
arrays costs one or two.
"""

from __future__ import annotations

from math import prod

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.own_dot import runs_as_own_kernel
from hlo2graph.ops.region import needs_own_kernel
from hlo2graph.passes.draft import is_settled

MOST_ELEMENTS = 1 << 20  # of an array
MOST_STEPS = 1 << 21  # of all windows of an instruction

_HEAVY = frozenset(
    {
        *("call", "conditional", "convolution", "custom-call", "fft", "fusion", "ragged-dot"),
        *("scaled-dot", "scan", "while"),
    }
)
_DRAWING = frozenset({"rng", "rng-get-and-update-state"})  # what is asked again may differ
_WINDOWS = frozenset({"reduce-window", "select-and-scatter"})


def is_small(computation: Computation) -> bool:
    """Tell whether it only computes, on arrays of at most MOST_ELEMENTS, with kernels of ours.

    Loops, branches, random numbers and what has a kernel all of its own are never small.
    """
    return all(_is_small(computation, instr) for instr in computation.instructions)


def _is_small(computation: Computation, instr: Instruction) -> bool:
    leaves = tuple(instr.shape.leaves())
    if not all(is_settled(leaf) and leaf.elements <= MOST_ELEMENTS for leaf in leaves):
        return False
    if instr.opcode in _HEAVY | _DRAWING or needs_own_kernel(instr):
        return False
    if instr.opcode in _WINDOWS:
        return leaves[0].elements * prod(w.size for w in window_dims(instr)) <= MOST_STEPS
    if instr.opcode != "dot":
        return True
    lhs, rhs = (computation[name].shape for name in instr.operands[:2])
    assert isinstance(lhs, Shape)
    assert isinstance(rhs, Shape)
    return runs_as_own_kernel(instr, lhs, rhs)
