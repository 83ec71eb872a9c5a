"""Programs that are one kernel form each, over large arrays: names, texts and bytes.

Each form has a size whose arrays have about 64 MB and one of several times that; none of the sizes
is a power of two, and some are odd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import hlo2graph
from hlo2graph.hlo import DTYPES
from tests.gpu.form_folds import folds, rows
from tests.gpu.form_moves import moves
from tests.gpu.form_text import LOOP, Forms, matrix, module, region
from tests.gpu.form_turns import turns

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
        for family in (_loops, moves, turns, folds, rows, _others):
            for name, (write, target) in family().items():
                yield Program(f"{name} {size // MB} MB", write(size), target)


def _count(size: int, dtype: str) -> int:
    """Return an odd number of elements."""
    return size // DTYPES[dtype].size | 1


_CONVERTED = (
    *(("bf16", "f32"), ("f32", "bf16"), ("u8", "f32"), ("f32", "u8")),
    *(("f32", "f64"), ("f16", "bf16"), ("bf16", "f8e4m3fn"), ("s8", "s64")),
)


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
    for dtype in ("f64", "c64", "f16", "f8e4m3fn"):
        found[f"loop of 2 {dtype}"] = (loop(dtype, 2), LOOP)
    for source, target in _CONVERTED:
        found[f"convert {source} to {target}"] = (converted(source, target), LOOP)
    return found


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

    def running_down(size: int) -> str:
        rows = size // 4 // 1501
        return module(
            f"x = f32[{rows},1501] parameter(0)\nz = f32[] constant(0)\n"
            f"ROOT r = f32[{rows},1501] reduce-window(x, z), "
            f"window={{size={rows}x1 pad={rows - 1}_0x0_0}}, to_apply=add",
            add,
        )

    running = "reduce-window(x, z), window={size=1x1500 pad=0_0x1499_0}, to_apply=add"
    window = "reduce-window(x, z), window={size=3x3 pad=1_1x1_1}, to_apply=add"
    return {
        "scatter-add rows": (scattered, None),
        "sort rows": (by_rows("sort(x), dimensions={1}, to_apply=less", less), None),
        "running sum of rows": (by_rows(running, add), None),
        "running sum of columns": (running_down, None),
        "windows of 3x3": (by_rows(window, add), None),
        "pool 2x2": (pooled, None),
    }
