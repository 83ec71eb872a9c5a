"""How warps that share rows, each with some keys, bring together what they have of them."""

from __future__ import annotations

from hlo2graph.backends.cuda.forms.attention_product import RowsProduct
from hlo2graph.backends.cuda.forms.dot_parts import ROWS
from hlo2graph.backends.cuda.forms.dot_store import TileStore
from hlo2graph.backends.cuda.forms.online_softmax import OnlineSoftmax
from hlo2graph.ops.device import Expr


def meeting_bytes(values: RowsProduct, warps: int) -> int:
    """Return what of shared memory the warps' sums of a tile of values take."""
    across, along = _kept(values)
    return warps * across * along * values.wide.size


def meet(values: RowsProduct, online: OnlineSoftmax, warps: int) -> None:
    """Write how a block's results are made of its warps' sums, and stored.

    Each is beside the largest score that its warp has seen, and becomes its part of the whole.
    """
    emit = values.emit
    across, along = _kept(values)
    emit.line(f"float (*const sums)[{across}][{along}] = ")
    emit.lines[-1] += f"(float (*)[{across}][{along}])hlo::dynamic_shared();"
    _share_out(values, online, warps)
    for tile in range(values.columns.tiles):
        left = str(tile * values.columns.tile)
        with emit.block(""):
            emit.line(f"auto& total = own[{tile}];")
            values.scale("share")
            values.share(lambda row, column: _place(values, row, column))
            emit.line("__syncthreads();")
            sides = values.rows, values.columns, values.along_columns
            where = values.batch, values.top, left
            store = TileStore(
                emit, values.results, values.product, values.parts, *sides, warps, *where
            )
            store.write(len(emit.lines))
            if tile + 1 < values.columns.tiles:
                emit.line("__syncthreads();")


def _share_out(values: RowsProduct, online: OnlineSoftmax, warps: int) -> None:
    """Write what each of a thread's sums is multiplied by, from what all warps have of its row."""
    emit, dtype, rows = values.emit, online.dtype, len(online.found)
    emit.line(f"__shared__ float largest[{warps}][{ROWS}], totals[{warps}][{ROWS}];")
    with emit.block("if (member == 0)"):
        for row, (most, total) in enumerate(online.found):
            emit.line(f"largest[warp][group * {rows} + {row}] = {most};")
            emit.line(f"totals[warp][group * {rows} + {row}] = {total};")
    emit.line("__syncthreads();")
    emit.line(f"float share[{rows}];")
    for row, (own, _) in enumerate(online.found):
        at = f"[group * {rows} + {row}]"
        most, total = emit.variable(dtype, online.least), emit.variable(dtype, "{}")
        emit.line("#pragma unroll")
        emit.line(f"for (int w = 0; w < {warps}; ++w)")
        emit.line(f"  {most} = hlo::maximum({most}, largest[w]{at});")
        beside = online.beside(most)
        emit.line("#pragma unroll")
        with emit.block(f"for (int w = 0; w < {warps}; ++w)"):
            scale = online.exponential(f"largest[w]{at}", beside)
            emit.line(f"{total} = hlo::add({total}, hlo::multiply(totals[w]{at}, {scale}));")
        part = online.exponential(own, beside)
        whole = online.total_of(most, total)
        emit.line(f"share[{row}] = hlo::multiply({part}, __frcp_rn({whole}));")


def _kept(values: RowsProduct) -> tuple[int, int]:
    """Return what one warp's sums take: one more than a row has, for the banks' sake."""
    sides = values.rows.tile, values.columns.tile
    across, along = sides if values.along_columns else sides[::-1]
    return across, along + 1


def _place(values: RowsProduct, row: Expr, column: Expr) -> Expr:
    across, along = (row, column) if values.along_columns else (column, row)
    return f"sums[warp][{across}][{along}]"
