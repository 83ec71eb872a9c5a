"""The cost rule of fusion: what a kernel takes, in nanoseconds, and what it may not do.

A kernel takes LAUNCH_NS, and then the longer of two: its bytes at BYTES_EACH_NS, its work at
STEPS_EACH_NS. Kernels are put together where that makes the sum smaller. The figures are those of
today's data-centre GPUs, of every target alike, so that a plan depends on its program alone.

- Bytes: what is read of each parameter (at most all of it, of a slice only what it takes), and each
  result; of an update in place the update. Read across the grain, a folding kernel's bytes count
  GRAIN times.
- Work: each instruction's weight times the elements of it that are computed, those computed again
  included: for a broadcast, a window, another loop over other dimensions.
- A loop's state takes a copy, which is a launch too, where its next value comes from a kernel that
  reads it at another index.
- What is dear (transcendental functions, folds) is computed once; again only MOST_AGAIN elements.
- What goes into a product is computed for each tile of it again: only what reads one array does, or
  what no other kernel takes in and is at most MOST_FED elements with all repetitions.
- A kernel has at most MOST_INSTRUCTIONS, which written out are at most MOST_WRITTEN (what is needed
  at two indices is written twice), and MOST_ARRAYS parameters and results: eight bytes each of the
  4 KB that a kernel's arguments may take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.hlo import AnyShape, Instruction, Shape
from hlo2graph.ops.expect import integers

LAUNCH_NS = 1000
BYTES_EACH_NS = 4000
STEPS_EACH_NS = 20000
GRAIN = 4
PRODUCTS_EACH_NS = 100_000  # of a library, on tensor cores
LOOP_NS = 10_000  # of a loop or a branch, whatever it does
MOST_AGAIN = 4096
MOST_FED = 1 << 14
MOST_INSTRUCTIONS = 256
MOST_WRITTEN = 1024
TOO_LONG = f"the kernel would have more than {MOST_INSTRUCTIONS} instructions"
MOST_ARRAYS = 128

_STEPPED = frozenset({"call", "conditional", "scan", "while"})


@dataclass(frozen=True, slots=True)
class Cost:
    """What a kernel takes.

    bytes: read and written in memory.
    work: cheap operations.
    again: elements of dear instructions that are computed more than once.
    instructions, arrays: how many the kernel has; arrays are parameters and results.
    written: instructions, those needed at several indices once for each.
    in_place: the results that are updates of a parameter in its own bytes.
    copied: the bytes of each state of a loop that takes a copy, as the kernel reads it elsewhere.
    """

    bytes: int
    work: int
    again: int
    instructions: int
    arrays: int
    written: int
    in_place: frozenset[str]
    copied: tuple[int, ...] = ()

    @property
    def time(self) -> int:
        """Nanoseconds, launching included; nothing where only views are left."""
        if not self.instructions:
            return 0
        copies = sum(LAUNCH_NS + 2 * size // BYTES_EACH_NS for size in self.copied)
        return LAUNCH_NS + max(self.bytes // BYTES_EACH_NS, self.work // STEPS_EACH_NS) + copies


def time_outside(instr: Instruction, operands: Sequence[AnyShape]) -> int:
    """Return the nanoseconds of what is not ours to fuse: a library's product, a loop, a call."""
    if instr.opcode in _STEPPED:
        return LOOP_NS
    moved = sum(shape.size for shape in (instr.shape, *operands)) // BYTES_EACH_NS
    if instr.opcode != "dot":
        return LAUNCH_NS + moved
    lhs = operands[0]
    assert isinstance(lhs, Shape)
    steps = prod(lhs.dims[d] for d in integers(instr, "lhs_contracting_dims", ()))
    return LAUNCH_NS + max(
        moved, sum(leaf.elements for leaf in instr.shape.leaves()) * steps // PRODUCTS_EACH_NS
    )


def too_large(cost: Cost) -> str | None:
    """Return which limit of a kernel's size is broken, in words."""
    if cost.instructions > MOST_INSTRUCTIONS:
        return TOO_LONG
    if cost.arrays > MOST_ARRAYS:
        return f"the kernel would have more than {MOST_ARRAYS} arrays"
    if cost.written > MOST_WRITTEN:
        return f"the kernel would be written out to more than {MOST_WRITTEN} instructions"
    return None
