"""Programs that move what large arrays hold: broadcasts, concatenates, pads, slices, gathers."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from hlo2graph.hlo import DTYPES
from tests.gpu.form_text import LOOP, Forms, matrix, module

SECTOR = 32  # bytes that memory moves at least
INDEX = 4  # bytes of an index


def moves() -> Forms:
    """Broadcasts, concatenates, pads, slices, gathers and updates."""
    return {
        "add a row": (_added("1", "add"), LOOP),
        "scale by a column": (_added("0", "multiply"), LOOP),
        "add an odd row bf16": (_added("1", "add", "bf16", 3001), LOOP),
        "broadcast a row": (_broadcast, LOOP),
        "concatenate": (_concatenated("f32", 500, 1004), LOOP),
        "concatenate askew": (_concatenated("f32", 499, 1002), LOOP),
        "concatenate askew bf16": (_concatenated("bf16", 999, 2002), LOOP),
        "concatenate rows": (_stacked, LOOP),
        "pad": (_padded("f32", 1500, 1540, "4_4x20_20"), LOOP),
        "pad askew bf16": (_padded("bf16", 3001, 3006, "4_4x2_3"), LOOP),
        "pad askew u8": (_padded("u8", 6001, 6006, "4_4x2_3"), LOOP),
        "slice askew": (_sliced("f32", 1501, 1500), LOOP),
        "slice askew bf16": (_sliced("bf16", 3001, 3000), LOOP),
        "slice askew u8": (_sliced("u8", 6001, 6000), LOOP),
        "every second column": (_strided, LOOP),
        "reverse rows": (_reversed, LOOP),
        "gather rows": (_gathered("f32", 300), LOOP),
        "gather odd rows bf16": (_gathered("bf16", 301), LOOP),
        "gather short rows": (_gathered("f32", 8), _reached(32)),
        "gather rows of 4 bytes": (_gathered("f32", 1), _reached(4)),
        "gather rows of 12 bytes": (_gathered("f32", 3), _reached(12)),
        "gather rows of 64 bytes": (_gathered("f32", 16), _reached(64)),
        "update rows": (_updated, LOOP),
        "select": (_selected, LOOP),
    }


def _rows(size: int, dtype: str, columns: int) -> int:
    return size // DTYPES[dtype].size // columns


def _added(dims: str, of: str, dtype: str = "f32", columns: int = 1500) -> Callable[[int], str]:
    def write(size: int) -> str:
        shape = matrix(size, dtype, columns)
        row = f"{dtype}[{columns if dims == '1' else _rows(size, dtype, columns)}]"
        return module(
            f"x = {shape} parameter(0)\nb = {row} parameter(1)\n"
            f"w = {shape} broadcast(b), dimensions={{{dims}}}\nROOT r = {shape} {of}(x, w)"
        )

    return write


def _broadcast(size: int) -> str:
    shape = matrix(size, "f32", 1501)
    return module(f"b = f32[1501] parameter(0)\nROOT r = {shape} broadcast(b), dimensions={{1}}")


def _concatenated(dtype: str, first: int, second: int) -> Callable[[int], str]:
    def write(size: int) -> str:
        rows = _rows(size, dtype, first + second)
        return module(
            f"x = {dtype}[{rows},{first}] parameter(0)\ny = {dtype}[{rows},{second}] parameter(1)\n"
            f"ROOT r = {dtype}[{rows},{first + second}] concatenate(x, y), dimensions={{1}}"
        )

    return write


def _stacked(size: int) -> str:
    rows = _rows(size, "f32", 1501)
    return module(
        f"x = f32[{rows // 3},1501] parameter(0)\ny = f32[{rows - rows // 3},1501] parameter(1)\n"
        f"ROOT r = f32[{rows},1501] concatenate(x, y), dimensions={{0}}"
    )


def _padded(dtype: str, columns: int, wide: int, padding: str) -> Callable[[int], str]:
    def write(size: int) -> str:
        rows = _rows(size, dtype, columns)
        return module(
            f"x = {dtype}[{rows},{columns}] parameter(0)\nz = {dtype}[] constant(0)\n"
            f"ROOT r = {dtype}[{rows + 8},{wide}] pad(x, z), padding={padding}"
        )

    return write


def _sliced(dtype: str, columns: int, kept: int) -> Callable[[int], str]:
    def write(size: int) -> str:
        rows = _rows(size, dtype, columns)
        return module(
            f"x = {dtype}[{rows},{columns}] parameter(0)\n"
            f"ROOT r = {dtype}[{rows},{kept}] slice(x), slice={{[0:{rows}],[1:{kept + 1}]}}"
        )

    return write


def _strided(size: int) -> str:
    rows = _rows(size, "f32", 1500)
    return module(
        f"x = f32[{rows},1500] parameter(0)\n"
        f"ROOT r = f32[{rows},750] slice(x), slice={{[0:{rows}],[0:1500:2]}}"
    )


def _reversed(size: int) -> str:
    shape = matrix(size, "f32", 1501)
    return module(f"x = {shape} parameter(0)\nROOT r = {shape} reverse(x), dimensions={{1}}")


def _gathered(dtype: str, columns: int) -> Callable[[int], str]:
    def write(size: int) -> str:
        rows = _rows(size, dtype, columns)
        return module(
            f"x = {dtype}[{rows},{columns}] parameter(0)\ni.{rows} = s32[{rows}] parameter(1)\n"
            f"ROOT r = {dtype}[{rows},{columns}] gather(x, i.{rows}), offset_dims={{1}}, "
            "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
            f"slice_sizes={{1,{columns}}}"
        )

    return write


def _reached(row: int) -> float:
    """Return the target of a gather of short rows of so many bytes, from anywhere in an array.

    Memory moves whole sectors, and no row shares its own with the one before. Rows begin at all
    multiples of what row and sector have in common.
    """
    starts = range(0, SECTOR, gcd(row, SECTOR))
    sectors = sum(-(-(start + row) // SECTOR) for start in starts) / len(starts)
    return LOOP * (2 * row + INDEX) / (row + INDEX + sectors * SECTOR)


def _updated(size: int) -> str:
    rows = _rows(size, "f32", 1501)
    few = rows // 3
    return module(
        f"x = f32[{rows},1501] parameter(0)\nu = f32[{few},1501] parameter(1)\n"
        f"a = s32[] constant({few // 2})\nb = s32[] constant(0)\n"
        f"ROOT r = f32[{rows},1501] dynamic-update-slice(x, u, a, b)"
    )


def _selected(size: int) -> str:
    dims = matrix(size, "f32", 1501).removeprefix("f32")
    return module(
        f"p = pred{dims} parameter(0)\nx = f32{dims} parameter(1)\ny = f32{dims} parameter(2)\n"
        f"ROOT r = f32{dims} select(p, x, y)"
    )
