"""The cost rule of fusion: what a kernel takes, in nanoseconds, and what it may not do.

A kernel takes LAUNCH_NS, FOLD_NS more where threads fold together, and then the longer of two: its
bytes at BYTES_EACH_NS, its work at STEPS_EACH_NS. Kernels are put together where that makes the sum
smaller. The figures are those of passes/figures.py.

- Bytes: what is read of each parameter (at most all of it, of a slice only what it takes), and each
  result; of an update in place the update. Read across the grain, a folding kernel's bytes count
  GRAIN times.
- Work: each instruction's weight times the elements of it that are computed, those computed again
  included: for a broadcast, a window, another loop over other dimensions.
- A loop's state takes a copy, which is a launch too, where its next value comes from a kernel that
  reads it at another index.
- What is dear (transcendental functions, folds of more than 16 steps) is computed once; again only
  MOST_AGAIN elements. A shorter fold, as of a few parts, is work like any other.
- Whatever it costs, a fold of floats that threads share, and a product, are in one kernel alone:
  another would add in another order, and what is compared with itself would differ from itself.
- What goes into a product is computed for each tile of it again: only what folds
  nothing and reads one array does, or what no other kernel takes in and is at most MOST_FED
  elements with all repetitions.
- A kernel has at most MOST_INSTRUCTIONS, which written out are at most MOST_WRITTEN (what is needed
  at two indices is written twice), and MOST_ARRAYS parameters and results: eight bytes each of the
  4 KB that a kernel's arguments may take. That counts readers at their own indices once, which are
  several where these are needed at several in turn; with all of them it is at most MOST_REPEATED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.hlo import AnyShape, Instruction
from hlo2graph.passes.figures import (
    BYTES_EACH_NS,
    FOLD_NS,
    LAUNCH_NS,
    LOOP_NS,
    STEPS_EACH_NS,
    library_ns,
)

GRAIN = 4
MOST_AGAIN = 4096
MOST_FED = 1 << 14
MOST_INSTRUCTIONS = 256
MOST_WRITTEN = 1024
MOST_REPEATED = 1 << 11
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
    repeated: the same, with all indices of what reads them.
    in_place: the results that are updates of a parameter in its own bytes.
    folds: whether threads fold together.
    copied: the bytes of each state of a loop that takes a copy, as the kernel reads it elsewhere.
    """

    bytes: int
    work: int
    again: int
    instructions: int
    arrays: int
    written: int
    repeated: int
    in_place: frozenset[str]
    folds: bool = False
    copied: tuple[int, ...] = ()

    @property
    def time(self) -> int:
        """Nanoseconds, launching included; nothing where only views are left."""
        if not self.instructions:
            return 0
        copies = sum(LAUNCH_NS + 2 * size // BYTES_EACH_NS for size in self.copied)
        begun = LAUNCH_NS + FOLD_NS * self.folds
        return begun + max(self.bytes // BYTES_EACH_NS, self.work // STEPS_EACH_NS) + copies


def time_outside(instr: Instruction, operands: Sequence[AnyShape]) -> int:
    """Return the nanoseconds of what is not ours to fuse: a library's product, a loop, a call."""
    return LOOP_NS if instr.opcode in _STEPPED else library_ns(instr, operands)


def too_large(cost: Cost) -> str | None:
    """Return which limit of a kernel's size is broken, in words."""
    if cost.instructions > MOST_INSTRUCTIONS:
        return TOO_LONG
    if cost.arrays > MOST_ARRAYS:
        return f"the kernel would have more than {MOST_ARRAYS} arrays"
    if cost.written > MOST_WRITTEN:
        return f"the kernel would be written out to more than {MOST_WRITTEN} instructions"
    if cost.repeated > MOST_REPEATED:
        return f"the kernel would repeat instructions more than {MOST_REPEATED} times"
    return None
