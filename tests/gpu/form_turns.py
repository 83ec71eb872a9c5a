"""Programs that turn large arrays: transposes, and permutations of three and four dimensions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlo2graph.hlo import DTYPES
from tests.gpu.form_text import LOOP, TURNED, Forms, module

IMAGE = (0, 3, 1, 2)  # features before places
HEADS = (0, 2, 1, 3)


def turns() -> Forms:
    """Transposes: of two dimensions, in batches, between image layouts, of major dimensions."""
    found: Forms = {
        f"transpose {dtype}": (_turned(dtype), TURNED)
        for dtype in ("f32", "bf16", "u8", "f64", "c64")
    }
    for dtype in ("f32", "bf16", "u8", "f64"):
        found[f"transpose odd {dtype}"] = (_turned(dtype, 1), TURNED)
    found["transpose and add"] = (_added, TURNED)
    found["transpose and widen"] = (_widened, TURNED)
    for name, (dtype, dims, order) in _PERMUTED.items():
        target = LOOP if order[-1] == len(dims) - 1 else TURNED
        found[name] = (_permuted(dtype, dims, order), target)
    return found


_PERMUTED = {
    "transpose in batches": ("f32", (0, 300, 220), (0, 2, 1)),
    "transpose odd batches bf16": ("bf16", (0, 197, 211), (0, 2, 1)),
    "transpose small batches": ("f32", (0, 20, 20), (0, 2, 1)),
    "transpose of few columns": ("f32", (0, 8), (1, 0)),
    "transpose to few columns": ("f32", (8, 0), (1, 0)),
    "transpose of 24 columns bf16": ("bf16", (0, 24), (1, 0)),
    "image to channels first": ("f32", (0, 56, 56, 96), IMAGE),
    "image to channels first bf16": ("bf16", (0, 56, 56, 96), IMAGE),
    "image to channels last": ("f32", (0, 96, 56, 56), (0, 2, 3, 1)),
    "colours first": ("f32", (0, 224, 224, 3), IMAGE),
    "colours first u8": ("u8", (0, 224, 224, 3), IMAGE),
    "colours last": ("f32", (0, 3, 224, 224), (0, 2, 3, 1)),
    "transpose of major dims": ("f32", (0, 24, 500), (1, 0, 2)),
    "heads apart": ("bf16", (0, 500, 12, 64), HEADS),
    "heads apart of 7": ("bf16", (0, 500, 12, 7), HEADS),
    "keys of heads": ("bf16", (0, 500, 12, 64), (0, 2, 3, 1)),
    "all dims turned": ("f32", (0, 120, 200), (2, 1, 0)),
    "first dimension last": ("bf16", (0, 50, 300), (1, 2, 0)),
}


def _square(size: int, dtype: str, more: int = 0) -> tuple[int, int]:
    """Return two sizes that differ: `more` than multiples of 4 but not of 8."""
    side = int((size / DTYPES[dtype].size) ** 0.5)
    return side // 8 * 8 + 4 + more, side // 8 * 8 - 12 + more


def _turned(dtype: str, more: int = 0) -> Callable[[int], str]:
    def write(size: int) -> str:
        return _transpose(dtype, _square(size, dtype, more), (1, 0))

    return write


def _permuted(dtype: str, dims: tuple[int, ...], order: tuple[int, ...]) -> Callable[[int], str]:
    def write(size: int) -> str:
        rest = max(1, size // DTYPES[dtype].size // prod(n for n in dims if n))
        return _transpose(dtype, tuple(n or rest for n in dims), order)

    return write


def _transpose(dtype: str, dims: tuple[int, ...], order: tuple[int, ...]) -> str:
    source = ",".join(map(str, dims))
    result = ",".join(str(dims[d]) for d in order)
    return module(
        f"x = {dtype}[{source}] parameter(0)\n"
        f"ROOT r = {dtype}[{result}] transpose(x), dimensions={{{','.join(map(str, order))}}}"
    )


def _added(size: int) -> str:
    a, b = _square(size, "f32")
    return module(
        f"x = f32[{a},{b}] parameter(0)\ny = f32[{b},{a}] parameter(1)\n"
        f"t = f32[{b},{a}] transpose(x), dimensions={{1,0}}\nROOT r = f32[{b},{a}] add(t, y)"
    )


def _widened(size: int) -> str:
    a, b = _square(size, "f32", 1)
    return module(
        f"x = bf16[{a},{b}] parameter(0)\nc = f32[{a},{b}] convert(x)\n"
        f"ROOT r = f32[{b},{a}] transpose(c), dimensions={{1,0}}"
    )
