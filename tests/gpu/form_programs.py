"""Programs that are one kernel form each, over large arrays: names, texts and bytes.

Each form has a size whose arrays have about 64 MB and one of several times that; none of the sizes
is a power of two, and some are odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import NamedTuple

import hlo2graph
from hlo2graph.hlo import DTYPES
from tests.gpu.form_folds import folds, rows
from tests.gpu.form_text import LOOP, TURNED, Forms, matrix, module, region

MB = 1_000_000
SIZES = (64 * MB, 400 * MB)  # of the largest array, about


class Program(NamedTuple):
    """One form at one size. `target` is the part of a copy's bandwidth that it is to reach."""

    name: str
    text: str
    target: float | None

    @property
    def bytes(self) -> int:
        """Bytes that any kernel has to move: each argument once, each result once."""
        plan = hlo2graph.plan(self.text, target="host")
        return sum(b.shape.size for b in (*plan.inputs, *plan.outputs))


def programs(sizes: Sequence[int] = SIZES) -> Iterator[Program]:
    """Yield all programs, form by form. Indices into N rows are named i.N."""
    for size in sizes:
        for family in (_loops, _moves, _turns, folds, rows, _others):
            for name, (write, target) in family().items():
                yield Program(f"{name} {size // MB} MB", write(size), target)


def _count(size: int, dtype: str) -> int:
    """Return an odd number of elements."""
    return size // DTYPES[dtype].size | 1


def _square(size: int, dtype: str) -> tuple[int, int]:
    """Return two sizes that differ, multiples of 4 but not of 8."""
    side = int((size / DTYPES[dtype].size) ** 0.5)
    return side // 8 * 8 + 4, side // 8 * 8 - 12


def _loops() -> Forms:
    """Elementwise work on one to three arrays, and between element types."""

    def loop(dtype: str, count: int) -> Callable[[int], str]:
        unary = "not" if dtype == "u8" else "negate"

        def write(size: int) -> str:
            shape = f"{dtype}[{_count(size, dtype)}]"
            lines = [f"p{k} = {shape} parameter({k})" for k in range(count)]
            lines.append(f"v0 = {shape} {unary}(p0)")
            lines += [f"v{k} = {shape} add(v{k - 1}, p{k})" for k in range(1, count)]
            return module("\n".join([*lines[:-1], f"ROOT {lines[-1]}"]))

        return write

    def converted(source: str, target: str) -> Callable[[int], str]:
        def write(size: int) -> str:
            count = _count(size, max(source, target, key=lambda d: DTYPES[d].size))
            return module(
                f"p = {source}[{count}] parameter(0)\nROOT r = {target}[{count}] convert(p)"
            )

        return write

    found: Forms = {
        f"loop of {count} {dtype}": (loop(dtype, count), LOOP)
        for dtype in ("f32", "bf16", "u8")
        for count in (1, 2, 3)
    }
    for source, target in (("bf16", "f32"), ("f32", "bf16"), ("u8", "f32")):
        found[f"convert {source} to {target}"] = (converted(source, target), LOOP)
    return found


def _moves() -> Forms:
    """Broadcasts, concatenates, pads, slices and gathers."""

    def added(dims: str, of: str) -> Callable[[int], str]:
        def write(size: int) -> str:
            shape = matrix(size, "f32", 1500)
            row = f"f32[{1500 if dims == '1' else size // 4 // 1500}]"
            return module(
                f"x = {shape} parameter(0)\nb = {row} parameter(1)\n"
                f"w = {shape} broadcast(b), dimensions={{{dims}}}\nROOT r = {shape} {of}(x, w)"
            )

        return write

    def concatenated(first: int, second: int) -> Callable[[int], str]:
        def write(size: int) -> str:
            rows = size // 4 // (first + second)
            return module(
                f"x = f32[{rows},{first}] parameter(0)\ny = f32[{rows},{second}] parameter(1)\n"
                f"ROOT r = f32[{rows},{first + second}] concatenate(x, y), dimensions={{1}}"
            )

        return write

    def padded(size: int) -> str:
        rows = size // 4 // 1500
        return module(
            f"x = f32[{rows},1500] parameter(0)\nz = f32[] constant(0)\n"
            f"ROOT r = f32[{rows + 8},1540] pad(x, z), padding=4_4x20_20"
        )

    def sliced(size: int) -> str:
        rows = size // 4 // 1501
        return module(
            f"x = f32[{rows},1501] parameter(0)\n"
            f"ROOT r = f32[{rows},1500] slice(x), slice={{[0:{rows}],[1:1501]}}"
        )

    def gathered(size: int) -> str:
        rows = size // 4 // 300
        return module(
            f"x = f32[{rows},300] parameter(0)\ni.{rows} = s32[{rows}] parameter(1)\n"
            f"ROOT r = f32[{rows},300] gather(x, i.{rows}), offset_dims={{1}}, "
            "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
            "slice_sizes={1,300}"
        )

    return {
        "add a row": (added("1", "add"), LOOP),
        "scale by a column": (added("0", "multiply"), LOOP),
        "concatenate": (concatenated(500, 1004), LOOP),
        "concatenate askew": (concatenated(499, 1002), None),
        "pad": (padded, LOOP),
        "slice askew": (sliced, None),
        "gather rows": (gathered, None),
    }


def _turns() -> Forms:
    """Transposes: of two dimensions, in batches, between image layouts, of major dimensions."""

    def turned(dtype: str) -> Callable[[int], str]:
        def write(size: int) -> str:
            a, b = _square(size, dtype)
            return module(
                f"x = {dtype}[{a},{b}] parameter(0)\n"
                f"ROOT r = {dtype}[{b},{a}] transpose(x), dimensions={{1,0}}"
            )

        return write

    def odd(size: int) -> str:
        a, b = _square(size, "f32")
        return module(
            f"x = f32[{a + 1},{b + 1}] parameter(0)\n"
            f"ROOT r = f32[{b + 1},{a + 1}] transpose(x), dimensions={{1,0}}"
        )

    def added(size: int) -> str:
        a, b = _square(size, "f32")
        return module(
            f"x = f32[{a},{b}] parameter(0)\ny = f32[{b},{a}] parameter(1)\n"
            f"t = f32[{b},{a}] transpose(x), dimensions={{1,0}}\nROOT r = f32[{b},{a}] add(t, y)"
        )

    def permuted(dims: tuple[int, ...], order: tuple[int, ...]) -> Callable[[int], str]:
        def write(size: int) -> str:
            whole = (max(1, size // 4 // prod(dims)), *dims)
            result = ",".join(str(whole[d]) for d in order)
            return module(
                f"x = f32[{','.join(map(str, whole))}] parameter(0)\n"
                f"ROOT r = f32[{result}] transpose(x), dimensions={{{','.join(map(str, order))}}}"
            )

        return write

    return {
        **{f"transpose {dtype}": (turned(dtype), TURNED) for dtype in ("f32", "bf16", "u8", "f64")},
        "transpose odd f32": (odd, TURNED),
        "transpose and add": (added, TURNED),
        "transpose in batches": (permuted((300, 220), (0, 2, 1)), TURNED),
        "image to channels first": (permuted((56, 56, 96), (0, 3, 1, 2)), TURNED),
        "transpose of major dims": (permuted((24, 500), (1, 0, 2)), LOOP),
    }


def _others() -> Forms:
    """What has a form of its own: scatter, sort, running sums, windows."""
    add, largest = region("add", "add", "f32"), region("largest", "maximum", "f32")
    less = (
        "less { a = f32[] parameter(0) b = f32[] parameter(1) "
        "ROOT r = pred[] compare(a, b), direction=LT }\n"
    )

    def scattered(size: int) -> str:
        rows = size // 4 // 300
        updates = rows // 8
        return module(
            f"x = f32[{rows},300] parameter(0)\ni.{rows} = s32[{updates},1] parameter(1)\n"
            f"u = f32[{updates},300] parameter(2)\n"
            f"ROOT r = f32[{rows},300] scatter(x, i.{rows}, u), update_window_dims={{1}}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
            "index_vector_dim=1, to_apply=add",
            add,
        )

    def by_rows(call: str, *regions: str) -> Callable[[int], str]:
        def write(size: int) -> str:
            shape = matrix(size, "f32", 1500)
            return module(
                f"x = {shape} parameter(0)\nz = f32[] constant(0)\nROOT r = {shape} {call}",
                *regions,
            )

        return write

    def pooled(size: int) -> str:
        batch = max(1, size // 4 // (56 * 56 * 100))
        return module(
            f"x = f32[{batch},56,56,100] parameter(0)\nz = f32[] constant(-inf)\n"
            f"ROOT r = f32[{batch},28,28,100] reduce-window(x, z), "
            "window={size=1x2x2x1 stride=1x2x2x1}, to_apply=largest",
            largest,
        )

    running = "reduce-window(x, z), window={size=1x1500 pad=0_0x1499_0}, to_apply=add"
    window = "reduce-window(x, z), window={size=3x3 pad=1_1x1_1}, to_apply=add"
    return {
        "scatter-add rows": (scattered, None),
        "sort rows": (by_rows("sort(x), dimensions={1}, to_apply=less", less), None),
        "running sum of rows": (by_rows(running, add), None),
        "windows of 3x3": (by_rows(window, add), None),
        "pool 2x2": (pooled, None),
    }
