"""Sorted updates of a scatter, folded in chunks first: no row then has too many to itself.

What updates a row differs: of tokens, clusters and padding few rows take in most. A chunk whose
updates are all of one row is folded by as many threads as any other, and stands as its first
update; the others are neutral, and the scatter's kernel passes over them (ops/folded_chunks.py).
A chunk of several rows stays: no row has more than two parts of such ones. What is left for a row
is least where chunks are longer, the more updates there are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from hlo2graph.hlo import DTYPES, Attribute, Instruction, Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.expect import integer, integers
from hlo2graph.ops.folded_chunks import chunk_config, chunk_of
from hlo2graph.ops.folding import neutral_of
from hlo2graph.ops.free_scatter import folds_freely, is_of_rows, parts_opcode
from hlo2graph.ops.spec import Computations
from hlo2graph.passes.large.arrays import Arrays
from hlo2graph.passes.rules.values import add_filled

FEWEST = 1024  # updates, from which on a row may have too many
MOST = 1 << 30
CHUNK = 64  # updates of a chunk, at least
CHUNKS_EACH = 8  # as many times as a chunk has updates there may be chunks, and no more
_PRED = DTYPES["pred"]


def takes_chunks(instr: Instruction, shapes: list[Shape], computations: Computations) -> bool:
    """Tell whether sorted updates are many, one behind the other, and may be folded apart."""
    is_sorted = instr.attrs.get("indices_are_sorted") is True
    if len(shapes) != 3 or not is_sorted or chunk_of(instr) is not None:
        return False
    operand, indices, update = shapes
    window = integers(instr, "update_window_dims", ())
    vector = integer(instr, "index_vector_dim")
    return (
        window == tuple(range(1, update.rank))
        and vector == 1
        and FEWEST <= update.dims[0] < MOST
        and indices.dtype.bits >= 8
        and parts_opcode(instr, computations) is not None
        and is_of_rows(instr, operand, update)
        and not folds_freely(instr, computations)
    )


def write_chunks(to: Arrays) -> None:
    """Give a scatter its updates with whole chunks of a row as their first."""
    operand, indices, update = to.like.operands
    chunk = CHUNK
    while to.shape(update).dims[0] > CHUNKS_EACH * chunk**2:
        chunk *= 2
    writer = _Chunks(to, chunk)
    updates = writer.updates(indices, update)
    attrs: dict[str, Attribute] = {**to.like.attrs, "backend_config": chunk_config(chunk)}
    made = replace(to.like, operands=(operand, indices, updates), attrs=attrs)
    to.draft.become(to.like.name, made)


class _Chunks:
    """Writes what updates become."""

    def __init__(self, to: Arrays, chunk: int) -> None:
        self.to, self.chunk = to, chunk
        self.shape = to.shape(to.like.operands[2])
        self.count = self.shape.dims[0] // chunk
        self.numbers = Shape(S32, (self.shape.dims[0],))
        opcode = parts_opcode(to.like, to.draft.computations)
        assert opcode is not None
        self.neutral = neutral_of(opcode, self.shape.dtype)

    def updates(self, indices: str, update: str) -> str:
        """Return the updates, one behind the other as before."""
        to = self.to
        is_whole = self._is_whole(indices)
        folds = self._folds(update, is_whole)
        number = to.iota(self.numbers, 0)
        each = to.like_filled(number, self.chunk)
        of_chunk = to.apply("divide", number, each)
        is_first = to.compare(to.apply("remainder", number, each), "EQ", to.like_filled(number, 0))
        stands = self._taken(is_whole, of_chunk)
        end = self.count * self.chunk
        if end < self.shape.dims[0]:
            inside = to.compare(number, "LT", to.like_filled(number, end))
            stands = to.apply("and", stands, inside)
        folded = self._chosen(is_first, self._taken(folds, of_chunk), self._filled(self.shape))
        return self._chosen(stands, folded, update)

    def _is_whole(self, indices: str) -> str:
        """Return of which chunks all updates are of one row."""
        to, end = self.to, self.count * self.chunk
        shape = to.shape(indices)
        if shape.rank == 1:
            vectors = Shape(shape.dtype, (*shape.dims, 1))
            indices = to.add("reshape", vectors, (indices,))
        first = to.cut(indices, 0, 0, end, self.chunk)
        last = to.cut(indices, 0, self.chunk - 1, end, self.chunk)
        same = to.compare(first, "EQ", last)
        parts = [to.cut(same, 1, k, k + 1) for k in range(to.shape(same).dims[1])]
        flags = [to.add("reshape", Shape(_PRED, (self.count,)), (part,)) for part in parts]
        return reduce(lambda one, other: to.apply("and", one, other), flags)

    def _folds(self, update: str, is_whole: str) -> str:
        """Return what the updates of whole chunks come to; of others one is looked at only."""
        to = self.to
        places = Shape(S32, (self.count, self.chunk))
        flat = to.iota(Shape(S32, (places.elements,)), 0)
        number = to.parted(flat, 0, self.count)
        is_wanted = to.broadcast(is_whole, replace(places, dtype=_PRED), (0,))
        inside = self._taken(update, self._chosen(is_wanted, number, to.like_filled(number, 0)))
        return to.add(
            "reduce",
            replace(self.shape, dims=(self.count, *self.shape.dims[1:]), layout=None),
            (inside, self._filled(Shape(self.shape.dtype))),
            dimensions=(1,),
            to_apply=to.like.attrs["to_apply"],
        )

    def _taken(self, name: str, places: str) -> str:
        """Return the rows of an array at some places."""
        to, shape, at = self.to, self.to.shape(name), self.to.shape(places).dims
        return to.add(
            "gather",
            Shape(shape.dtype, (*at, *shape.dims[1:])),
            (name, places),
            offset_dims=tuple(range(len(at), len(at) + shape.rank - 1)),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=len(at),
            slice_sizes=(1, *shape.dims[1:]),
        )

    def _chosen(self, test: str, one: str, other: str) -> str:
        """Return `one` where a test holds, which may be of whole rows, else `other`."""
        to, shape = self.to, self.to.shape(one)
        if to.shape(test).rank < shape.rank:
            dims = range(to.shape(test).rank)
            test = to.broadcast(test, replace(shape, dtype=_PRED), dims)
        return to.add("select", shape, (test, one, other))

    def _filled(self, shape: Shape) -> str:
        """Return an array whose elements change no others."""
        return add_filled(self.to.draft, self.to.like, shape, self.neutral)
