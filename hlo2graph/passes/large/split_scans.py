"""Take what accumulates along few long rows apart, as a block goes along its rows alone.

In and out: a Module of the same meaning, where floats may be folded in another order. Each part of
a row is folded by itself, then the parts' totals accumulate. Then each part does, where elements
take in the total of what lies before their part: the array is read twice and written once. Totals
of narrow floats are float32, which what accumulates is too in a whole row's registers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlo2graph.hlo import (
    Attribute,
    Computation,
    DType,
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
from hlo2graph.passes.split_steps import Regions, wide_type

PART = 1024  # elements of a part, about
EVEN = 4  # of which a part has a multiple if it can
FEWEST = 8  # parts of a row
ROWS, COLUMNS = (
    288,
    96,
)  # blocks that move what parts do: of rows, and of rows that lie side by side
WORD = 4  # bytes: a block goes along smaller elements no faster
KERNELS = 20 << 20  # bytes that memory moves while two kernels more begin and end


def split_scans(module: Module) -> Module:
    """Return `module` with reduce-windows that accumulate along few long rows taken apart."""
    opcodes = {name: binary_reducer(module.computations, name) for name in module.computations}
    regions = Regions(module)

    def rewrite(draft: Draft) -> Computation:
        for instr in [i for i in draft.instructions.values() if i.opcode == "reduce-window"]:
            opcode = opcodes[str(instr.attrs["to_apply"])]
            if opcode in COMMUTATIVE and draft.is_pure(instr) and isinstance(instr.shape, Shape):
                _split(draft, instr, str(opcode), regions)
        return draft.done()

    return regions.added_to(redraft(module, "reduce-window", rewrite))


def _split(draft: Draft, instr: Instruction, opcode: str, regions: Regions) -> None:
    name, init = instr.operands
    shape, along = draft.shape(name), scanned_dim(instr)
    if along is None or not is_settled(shape) or not shape.elements:
        return
    length, part = shape.dims[along], _part(shape.dims[along])
    parts = -(-length // part)
    if length < FEWEST * PART or not _pays(shape, along):
        return
    to, backwards, wide = Arrays(draft, instr), is_backwards(instr, along), wide_type(shape.dtype)
    scan = _Scan(to, regions.named(opcode, wide), backwards)
    neutral = draft.add(instr, "constant", Shape(wide), payload=_neutral(opcode, wide))
    beyond = parts * part - length  # elements behind all others, which come to nothing
    edges = PaddingDim(beyond, 0) if backwards else PaddingDim(0, beyond)
    apart = to.parted(to.padded(name, along, edges, init), along, parts)
    totals = scan.folded(to.converted(apart, wide), along + 1, neutral)
    local = scan.accumulated(to.converted(apart, wide), along + 1, neutral)
    start = to.converted(init, wide)
    shift = PaddingDim(-1, 1) if backwards else PaddingDim(1, -1)
    before = to.padded(scan.accumulated(totals, along, start), along, shift, start)
    kept = [d for d in range(shape.rank + 1) if d != along + 1]
    spread = to.broadcast(before, to.shape(local), kept)
    found = to.converted(to.apply(opcode, spread, local), shape.dtype)
    to.end(to.cut(to.merged(found, along), along, edges.low, edges.low + length))


def _part(length: int) -> int:
    """Return how many elements a part has: about PART, so that all are as long if they can be."""
    near = sorted(range(PART // 2, 2 * PART + 1), key=lambda n: (n % EVEN > 0, abs(n - PART)))
    return next((n for n in near if length % n == 0), PART)


def _pays(shape: Shape, along: int) -> bool:
    """Tell whether three moves by many blocks take less time than two by those that rows make."""
    rows = shape.elements // shape.dims[along]
    together = min(rows_side_by_side(shape, along), fewest_together(shape, along))
    blocks, busy = -(-rows // together), COLUMNS if together > 1 else ROWS
    size = shape.elements * max(WORD, shape.dtype.size)
    return 2 * size * busy > blocks * (3 * size + KERNELS)


def _neutral(opcode: str, dtype: DType) -> Literal:
    return Literal(Shape(dtype), np.asarray(neutral_of(opcode, dtype)))


@dataclass(frozen=True, slots=True)
class _Scan:
    """Writes what folds by `region` along a dimension, from its end where `backwards`."""

    to: Arrays
    region: str
    backwards: bool

    def folded(self, name: str, along: int, neutral: str) -> str:
        """Return the totals."""
        shape = self.to.shape(name)
        dims = (*shape.dims[:along], *shape.dims[along + 1 :])
        order = [d - (d > along) for d in shape.minor_to_major if d != along]
        attrs: dict[str, Attribute] = {"dimensions": (along,), "to_apply": self.region}
        return self.to.add("reduce", laid_out(shape, dims, order), (name, neutral), **attrs)

    def accumulated(self, name: str, along: int, init: str) -> str:
        """Return the running totals, each of which takes `init` in."""
        shape = self.to.shape(name)
        window = cumulative(shape.rank, along, shape.dims[along], backwards=self.backwards)
        attrs: dict[str, Attribute] = {"window": Window(window), "to_apply": self.region}
        return self.to.add("reduce-window", shape, (name, init), **attrs)
