"""How tiles go to results whose rows begin anywhere in a word: by whole words all the same.

A thread takes elements of a row that fill a word of the result as it lies in memory. In the tile
these lie across two words. Where a row begins or ends within a word, its elements go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.ops.device import Expr, Index

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.forms.transposes.transpose import TileWriter


def store_words(writer: TileWriter) -> None:
    """Write what a thread does for a `row` of the tile: `lane` says which word is its own."""
    emit, tile = writer.emit, writer.tile
    turns = tile.high // tile.written_at_once if tile.high % tile.written_at_once == 0 else 0
    within, part = f"row % {tile.high}", f"row / {tile.high}"
    if turns:  # of which the compiler knows more than of the row
        within, part = f"rank + turn % {turns} * {tile.written_at_once}", f"turn / {turns}"
    number = emit.integer(f"top + {within}")
    below = emit.integer(f"({tile.odd_square(number)}) + {part}")
    y = emit.split(below, writer.what.sizes(writer.what.across))
    # What the last square has again is not its own to write: an argument may lie there too.
    with emit.block(f"if ({below} >= {number} * {tile.square})"):
        _store_row(writer, y)


def _store_row(writer: TileWriter, y: Index) -> None:
    emit, tile = writer.emit, writer.tile
    assert tile.ends is not None
    along, square, sector = tile.ends[0], tile.square, tile.sector * tile.square
    zeros = tuple("0" for _ in writer.what.along)
    begin = emit.integer(emit.offset(writer.results[0], writer.place(zeros, y)))
    before = emit.integer(f"{begin} & {sector - 1}") if tile.spare else "0"
    start = emit.integer(f"(left + lane) * {square} - {before}")
    held = [_word(writer, words, before) for words in writer.words]
    with emit.block(f"if ({start} >= 0 && {start} <= {along - square})"):
        if _is_moved(writer):  # bit by bit: the compiler would take it apart and put it together
            bits = 8 * square * writer.results[0].dtype.size
            emit.line(f"*(hlo::u{bits}*)(r0 + ({begin} + {start})) = {held[0]};")
        else:
            word = emit.integer(f"({begin} - {before}) / {square} + left + lane")
            first = emit.integer(f"{word} * {square}")
            mark = writer.declare_lane()
            place = _place(writer, emit.integer(f"{start} + part"), y)
            emit.places.know(place, writer.results[0], emit.integer(f"{first} + part"))
            writer.write_values(place, writer.values(place, _elements(writer, held)))
            writer.widen(mark)
    with emit.block("else"):
        emit.line("#pragma unroll 1")
        with emit.block(f"for (int part = 0; part < {square}; ++part)"):
            at = emit.integer(f"{start} + part")
            with emit.block(f"if ({at} >= 0 && {at} < {along})"):
                place = _place(writer, at, y)
                writer.write_values(place, writer.values(place, _elements(writer, held)))


def _is_moved(writer: TileWriter) -> bool:
    """Tell whether words go to the one result as they are."""
    is_one = len(writer.results) == 1 and not writer.misaligned
    return is_one and writer.what.is_moved(writer.computation)


def _word(writer: TileWriter, words: str, before: Expr) -> Expr:
    """Read a word, given how many elements before the tile's row it begins."""
    emit, tile = writer.emit, writer.tile
    column = emit.integer(f"(lane + {tile.spare}) * {tile.square} - {before}")
    held, row = emit.fresh("w"), tile.stride // tile.square
    emit.line(f"const auto {held} = hlo::word_at<{tile.square}>({words} + row * {row}, {column});")
    return held


def _place(writer: TileWriter, x: Expr, y: Index) -> Index:
    return writer.place(writer.emit.split(x, writer.what.sizes(writer.what.along)), y)


def _elements(writer: TileWriter, words: Sequence[Expr]) -> list[Expr]:
    """Return what lane `part` has of each cut."""
    return [
        f"hlo::element_of<{storage_type(cut.dtype)}>({word}, part)"
        for cut, word in zip(writer.cuts, words, strict=True)
    ]
