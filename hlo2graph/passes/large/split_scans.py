"""Take what accumulates along few long rows apart, as a block goes along a row alone.

In and out: a Module of the same meaning, where floats may be folded in another order. Each part of
a row accumulates by itself, then the parts' totals do, and every element takes in the total of what
lies before its part.
"""

from __future__ import annotations

import numpy as np

from hlo2graph.hlo import (
    Computation,
    Instruction,
    Literal,
    Module,
    PaddingDim,
    Shape,
    Window,
)
from hlo2graph.ops.cumulative import cumulative, is_backwards, scanned_dim
from hlo2graph.ops.folding import neutral_of
from hlo2graph.ops.scalar_region import COMMUTATIVE, binary_reducer
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.arrays import Arrays
from hlo2graph.passes.redraft import redraft

PART = 2048  # elements of a part: what a block accumulates at once
MOST_ROWS = 64  # beyond which blocks of a row each are enough
FEWEST = 8  # parts of a row, below which three kernels take longer than one


def split_scans(module: Module) -> Module:
    """Return `module` with reduce-windows that accumulate along few long rows taken apart."""
    opcodes = {name: binary_reducer(module.computations, name) for name in module.computations}

    def rewrite(draft: Draft) -> Computation:
        for instr in [i for i in draft.instructions.values() if i.opcode == "reduce-window"]:
            opcode = opcodes[str(instr.attrs["to_apply"])]
            if opcode in COMMUTATIVE and draft.is_pure(instr) and isinstance(instr.shape, Shape):
                _split(draft, instr, str(opcode))
        return draft.done()

    return redraft(module, "reduce-window", rewrite)


def _split(draft: Draft, instr: Instruction, opcode: str) -> None:
    name, init = instr.operands
    shape, along = draft.shape(name), scanned_dim(instr)
    if along is None or not is_settled(shape) or not shape.elements:
        return
    length = shape.dims[along]
    parts = -(-length // PART)
    if parts < FEWEST or shape.elements // length > MOST_ROWS:
        return
    to, backwards = Arrays(draft, instr), is_backwards(instr, along)
    neutral = draft.add(instr, "constant", Shape(shape.dtype), payload=_neutral(opcode, shape))
    whole = to.padded(name, along, PaddingDim(0, parts * PART - length), neutral)
    local = _accumulated(to, to.parted(whole, along, parts), along + 1, neutral, backwards)
    end = 0 if backwards else PART - 1
    totals = to.cut(local, along + 1, end, end + 1)
    before = _accumulated(to, totals, along, init, backwards)
    shift = PaddingDim(-1, 1) if backwards else PaddingDim(1, -1)
    before = to.merged(to.padded(before, along, shift, init), along)
    kept = [d for d in range(shape.rank + 1) if d != along + 1]
    spread = to.broadcast(before, to.shape(local), kept)
    found = to.merged(to.apply(opcode, spread, local), along)
    to.end(to.cut(found, along, 0, length))


def _neutral(opcode: str, shape: Shape) -> Literal:
    return Literal(Shape(shape.dtype), np.asarray(neutral_of(opcode, shape.dtype)))


def _accumulated(to: Arrays, name: str, along: int, init: str, backwards: bool) -> str:
    shape = to.shape(name)
    window = cumulative(shape.rank, along, shape.dims[along], backwards=backwards)
    region = to.like.attrs["to_apply"]
    return to.add("reduce-window", shape, (name, init), window=Window(window), to_apply=region)
