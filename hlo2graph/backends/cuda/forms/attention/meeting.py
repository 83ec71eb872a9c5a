"""How warps that share rows, each with some keys, bring together what they have of them.

Those of a block meet in shared memory; then, where blocks of a cluster share rows too, these do in
each other's: each block has summed up what its warps have, and writes some of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hlo2graph.backends.cuda.forms.attention.online_softmax import OnlineSoftmax
from hlo2graph.backends.cuda.forms.attention.product import RowsProduct
from hlo2graph.backends.cuda.forms.attention.sharing import Sharing
from hlo2graph.backends.cuda.forms.products.dot_parts import ROWS
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr

MEETS = "hlo::cluster_meets();"


def meeting_bytes(values: RowsProduct, warps: int) -> int:
    """Return what of shared memory the warps' sums of a tile of values take, and a block's rows."""
    return (warps * prod(values.kept) + 2 * ROWS) * values.wide.size


def meet(values: RowsProduct, online: OnlineSoftmax, sharing: Sharing) -> None:
    """Write how a cluster's results are made of its warps' sums, and stored.

    Each is beside the largest score that its warp has seen, and becomes its part of the whole.
    """
    emit, (across, along) = values.emit, values.kept
    kind = f"float (*)[{across}][{along}]"
    emit.line(f"float (*const sums)[{across}][{along}] = ({kind})hlo::dynamic_shared();")
    _share_out(values, online, sharing)
    if sharing.blocks > 1:
        emit.line(f"float (*met[{sharing.blocks}])[{along}];")
        emit.line("#pragma unroll")
        emit.line(f"for (int r = 0; r < {sharing.blocks}; ++r) met[r] = hlo::of_block(sums[0], r);")
    for tile in range(values.columns.tiles):
        left = str(tile * values.columns.tile)
        with emit.block(""):
            emit.line(f"auto& total = own[{tile}];")
            values.scale("share")
            values.share(values.place_of)
            emit.line("__syncthreads();")
            if sharing.blocks > 1:
                _sum_up(values, sharing.warps)
            _store(values, left, sharing)
            if sharing.blocks > 1:
                emit.line(MEETS)  # what others read stays till then
            elif tile + 1 < values.columns.tiles:
                emit.line("__syncthreads();")


def _store(values: RowsProduct, left: Expr, sharing: Sharing) -> None:
    """Write how the results are stored: each by one thread of the cluster."""
    store = replace(values.tile_store(left), warps=sharing.all)
    if sharing.blocks > 1:
        parts = [replace(part, sums="met") for part in values.parts]
        thread = f"(rank * {sharing.warps * WARP} + threadIdx.x)"
        store = replace(store, parts=parts, thread=thread, terms=sharing.blocks)
    store.write(len(values.emit.lines))


def _sum_up(values: RowsProduct, warps: int) -> None:
    """Write how a block sums up what its warps have, for all of the cluster to read."""
    emit, size = values.emit, prod(values.kept)
    emit.line("float* const held = (float*)sums;")
    head = f"for (int slot = threadIdx.x; slot < {size}; slot += {warps * WARP})"
    with emit.block(head):
        emit.line("float whole = held[slot];")
        emit.line("#pragma unroll")
        emit.line(f"for (int w = 1; w < {warps}; ++w) whole += held[w * {size} + slot];")
        emit.line("held[slot] = whole;")
    emit.line(MEETS)


def _share_out(values: RowsProduct, online: OnlineSoftmax, sharing: Sharing) -> None:
    """Write what each of a thread's sums is multiplied by, from what all warps have of its row."""
    emit, rows, warps = values.emit, len(online.found), sharing.warps
    emit.line(f"__shared__ float largest[{warps}][{ROWS}], totals[{warps}][{ROWS}];")
    with emit.block("if (member == 0)"):
        for row, (most, total) in enumerate(online.found):
            emit.line(f"largest[warp][group * {rows} + {row}] = {most};")
            emit.line(f"totals[warp][group * {rows} + {row}] = {total};")
    emit.line("__syncthreads();")
    places = [f"group * {rows} + {row}" for row in range(rows)]
    found = [_folded(online, warps, f"largest[w][{at}]", f"totals[w][{at}]") for at in places]
    if sharing.blocks > 1:
        found = _of_cluster(online, found, places, sharing)
    emit.line(f"float share[{rows}];")
    for row, ((own, _), (most, total)) in enumerate(zip(online.found, found, strict=True)):
        part = online.exponential(own, online.beside(most))
        whole = online.total_of(most, total)
        emit.line(f"share[{row}] = hlo::multiply({part}, __frcp_rn({whole}));")


def _of_cluster(
    online: OnlineSoftmax,
    found: Sequence[tuple[Expr, Expr]],
    places: Sequence[Expr],
    sharing: Sharing,
) -> list[tuple[Expr, Expr]]:
    """Write how blocks tell each other their largest scores and sums; return all blocks'."""
    emit = online.emit
    emit.line(f"float (*const rows)[{ROWS}] = (float (*)[{ROWS}])(sums + {sharing.warps});")
    with emit.block("if (warp == 0 && member == 0)"):
        for place, each in zip(places, found, strict=True):
            for kind, value in enumerate(each):
                emit.line(f"rows[{kind}][{place}] = {value};")
    emit.line(MEETS)
    largest, total = (f"hlo::of_block(rows, w)[{kind}]" for kind in (0, 1))
    return [_folded(online, sharing.blocks, f"{largest}[{at}]", f"{total}[{at}]") for at in places]


def _folded(online: OnlineSoftmax, count: int, largest: Expr, total: Expr) -> tuple[Expr, Expr]:
    """Write how a row's largest scores, and the sums beside them, of so many `w` are folded."""
    emit, dtype = online.emit, online.dtype
    most, whole = emit.variable(dtype, online.least), emit.variable(dtype, "{}")
    emit.line("#pragma unroll")
    emit.line(f"for (int w = 0; w < {count}; ++w)")
    emit.line(f"  {most} = hlo::maximum({most}, {largest});")
    beside = online.beside(most)
    emit.line("#pragma unroll")
    with emit.block(f"for (int w = 0; w < {count}; ++w)"):
        scale = online.exponential(largest, beside)
        emit.line(f"{whole} = hlo::add({whole}, hlo::multiply({total}, {scale}));")
    return most, whole
