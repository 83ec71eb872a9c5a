"""Loops that read an array at several places around an element: a block takes a patch of rows.

Elements that are neighbours, in a row or in the rows above and below, share what they read. Blocks
of elements side by side read as many rows as one element does, each for itself; a block that is a
patch reads little more than it has elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.lanes import LOAD, Node, chains, tree_of
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.backends.cuda.widen import FEW
from hlo2graph.hlo import Shape

WIDE, HIGH = 64, 16
FEWEST_READS = 3  # of an array, for an element
ROUNDS = 3  # that a loop is taken to go through


@dataclass(frozen=True, slots=True)
class Patches:
    """Arrays of `rows` rows of `row` elements, cut into patches; the last may reach past an end."""

    rows: int
    row: int

    @property
    def across(self) -> int:
        """Patches side by side."""
        return -(-self.row // WIDE)

    @property
    def blocks(self) -> int:
        """Patches in all."""
        return self.across * -(-self.rows // HIGH)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return WIDE * HIGH

    def place(self, emit: ElementEmitter) -> str:
        """Declare `thread`, the number of its element; return the test for there being one."""
        kind, block = emit.index_type, emit.block_index
        emit.line(f"const {kind} x = {block} % {self.across} * {WIDE} + threadIdx.x % {WIDE};")
        emit.line(f"const {kind} y = {block} / {self.across} * {HIGH} + threadIdx.x / {WIDE};")
        emit.line(f"const {kind} thread = y * {self.row} + x;")
        tests = [f"x < {self.row}"] if self.row % WIDE else []
        tests += [f"y < {self.rows}"] if self.rows % HIGH else []
        return " && ".join(tests)


def patches_of(results: Sequence[Shape]) -> Patches | None:
    """Return the patches of results of the same dimensions, where they have rows for some."""
    first = results[0]
    if not all(leaf.is_row_major for leaf in results) or first.rank < 2:
        return None
    row = first.dims[-1]
    rows = first.elements // row
    return Patches(rows, row) if row >= WIDE and rows >= HIGH else None


def reads_around(lines: Sequence[str], signature: Signature, count: int) -> bool:
    """Tell whether the code of one of `count` elements reads a large array at several places."""
    large = {f"p{k}" for k, s in enumerate(signature.parameters) if s.elements * FEW >= count}
    tree = tree_of(lines)
    return any(_reads(tree, array) >= FEWEST_READS for array in large)


def _reads(nodes: Sequence[Node], array: str) -> int:
    """Count the loads of an array on the longest way through the code."""
    found = 0
    for chain in chains(nodes):
        if isinstance(chain[0], str):
            found += sum(name == array for name, _ in LOAD.findall(chain[0]))
            continue
        most = max(_reads(block.body, array) for block in chain if not isinstance(block, str))
        found += most * (ROUNDS if chain[0].head.startswith("for") else 1)
    return found
