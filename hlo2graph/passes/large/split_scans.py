"""Take what accumulates along few long rows apart, as a block goes along its rows alone.

In and out: a Module of the same meaning, where floats may be folded in another order. Each part of
a row is folded by itself, then the parts' totals accumulate. Then each part does, where elements
take in the total of what lies before their part: the array is read twice and written once.
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
from hlo2graph.ops.cumulative import (
    cumulative,
    fewest_together,
    is_backwards,
    rows_side_by_side,
    scanned_dim,
)
from hlo2graph.ops.folding import neutral_of
from hlo2graph.ops.scalar_region import COMMUTATIVE, binary_reducer
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.arrays import Arrays, laid_out
from hlo2graph.passes.redraft import redraft

PART = 1024  # elements of a part, about
EVEN = 4  # of which a part has a multiple if it can
FEWEST = 8  # parts of a row
BUSY = 150  # blocks that keep memory busy, more of elements smaller than a word
WORD = 4  # bytes
KERNELS = 20 << 20  # bytes that memory moves while two kernels more begin and end


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
    length, part = shape.dims[along], _part(shape.dims[along])
    parts = -(-length // part)
    if length < FEWEST * PART or not _pays(shape, along):
        return
    to, backwards = Arrays(draft, instr), is_backwards(instr, along)
    neutral = draft.add(instr, "constant", Shape(shape.dtype), payload=_neutral(opcode, shape))
    whole = to.padded(name, along, PaddingDim(0, parts * part - length), neutral)
    apart = to.parted(whole, along, parts)
    totals = _folded(to, apart, along + 1, neutral)
    shift = PaddingDim(-1, 1) if backwards else PaddingDim(1, -1)
    before = to.padded(_accumulated(to, totals, along, init, backwards), along, shift, init)
    local = _accumulated(to, apart, along + 1, neutral, backwards)
    kept = [d for d in range(shape.rank + 1) if d != along + 1]
    spread = to.broadcast(before, to.shape(local), kept)
    found = to.merged(to.apply(opcode, spread, local), along)
    to.end(to.cut(found, along, 0, length))


def _part(length: int) -> int:
    """Return how many elements a part has: about PART, so that all are as long if they can be."""
    near = sorted(range(PART // 2, 2 * PART + 1), key=lambda n: (n % EVEN > 0, abs(n - PART)))
    return next((n for n in near if length % n == 0), PART)


def _pays(shape: Shape, along: int) -> bool:
    """Tell whether three moves by many blocks take less time than two by those that rows make.

    Memory is as busy as there are blocks, up to BUSY of them.
    """
    rows = shape.elements // shape.dims[along]
    together = min(rows_side_by_side(shape, along), fewest_together(shape, along))
    busy = BUSY * WORD // min(WORD, shape.dtype.size)
    return 2 * shape.size * busy > -(-rows // together) * (3 * shape.size + KERNELS)


def _folded(to: Arrays, name: str, along: int, neutral: str) -> str:
    shape = to.shape(name)
    dims = (*shape.dims[:along], *shape.dims[along + 1 :])
    order = [d - (d > along) for d in shape.minor_to_major if d != along]
    region = to.like.attrs["to_apply"]
    result = laid_out(shape, dims, order)
    return to.add("reduce", result, (name, neutral), dimensions=(along,), to_apply=region)


def _neutral(opcode: str, shape: Shape) -> Literal:
    return Literal(Shape(shape.dtype), np.asarray(neutral_of(opcode, shape.dtype)))


def _accumulated(to: Arrays, name: str, along: int, init: str, backwards: bool) -> str:
    shape = to.shape(name)
    window = cumulative(shape.rank, along, shape.dims[along], backwards=backwards)
    region = to.like.attrs["to_apply"]
    return to.add("reduce-window", shape, (name, init), window=Window(window), to_apply=region)
