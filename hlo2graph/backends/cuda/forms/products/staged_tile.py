"""How large the tiles of a product are whose operands meet in shared memory."""

from __future__ import annotations

from math import prod

from hlo2graph.backends.cuda.forms.products.product import Product, Side

SPAN = 32  # columns, and at least as many rows, that a warp computes: a thread has one of eight
MOST_SPAN = 64  # rows that a warp computes where there are tiles enough
MOST_ROWS, MOST_COLUMNS = 128, 64  # of a tile
LESS = 0.85
BUSY = 0.5  # part of a device that at least has work, where the results are enough


def staged_tile(product: Product, multiprocessors: int) -> tuple[Side, Side]:
    """Return both sides: tiles get smaller while too few multiprocessors have one.

    Then once more, where what the busiest has to do gets LESS by it.
    """
    rows, columns = (
        side.cut(min(most, max(SPAN, 1 << (side.extent - 1).bit_length())))
        for side, most in zip(product.sides, (MOST_ROWS, MOST_COLUMNS), strict=True)
    )
    batches, wanted = prod(product.batches), multiprocessors * BUSY
    while batches * rows.tiles * columns.tiles < wanted and max(rows.tile, columns.tile) > SPAN:
        if rows.tile >= columns.tile:
            rows = rows.cut(rows.tile // 2)
        else:
            columns = columns.cut(columns.tile // 2)
    half = rows.cut(max(SPAN, rows.tile // 2))
    most, less = (
        -(-batches * side.tiles * columns.tiles // multiprocessors) * side.tile
        for side in (rows, half)
    )
    return (half if rows.tile > MOST_SPAN and less < LESS * most else rows), columns
