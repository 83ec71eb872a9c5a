"""Programs that fold rows, columns and all of large arrays: reductions and normalisations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlo2graph.hlo import DTYPES
from tests.fold_programs import fold_program
from tests.gpu.form_text import LOOP, TURNED, Forms, module, region


def folds() -> Forms:
    """Reductions along rows, columns, middle dimensions and everything."""
    return {
        "reduce rows f32": (_reduced("f32", (0, 1500), (1,)), LOOP),
        "reduce rows bf16": (_reduced("bf16", (0, 3000), (1,)), LOOP),
        "reduce rows u8": (_reduced("u8", (0, 6000), (1,)), LOOP),
        "reduce odd rows": (_reduced("f32", (0, 1501), (1,)), LOOP),
        "reduce odd rows bf16": (_reduced("bf16", (0, 3001), (1,)), LOOP),
        "reduce odd rows u8": (_reduced("u8", (0, 6001), (1,)), LOOP),
        "reduce short rows": (_reduced("f32", (0, 60), (1,)), LOOP),
        "reduce few long rows": (_reduced("f32", (7, 0), (1,)), LOOP),
        "reduce columns f32": (_reduced("f32", (0, 1500), (0,)), TURNED),
        "reduce columns bf16": (_reduced("bf16", (0, 3000), (0,)), TURNED),
        "reduce odd columns": (_reduced("f32", (0, 1501), (0,)), TURNED),
        "reduce odd columns bf16": (_reduced("bf16", (0, 3001), (0,)), TURNED),
        "reduce odd columns u8": (_reduced("u8", (0, 6001), (0,)), TURNED),
        "reduce columns f64": (_reduced("f64", (0, 1500), (0,)), TURNED),
        "reduce narrow columns bf16": (_reduced("bf16", (0, 129), (0,)), TURNED),
        "reduce few columns": (_reduced("f32", (0, 12), (0,)), TURNED),
        "reduce many columns": (_reduced("f32", (300, 0), (0,)), TURNED),
        "reduce a middle dimension": (_reduced("f32", (0, 300, 500), (1,)), TURNED),
        "reduce an odd middle dimension bf16": (_reduced("bf16", (0, 197, 301), (1,)), TURNED),
        "reduce around a dimension": (_reduced("f32", (0, 24, 3000), (0, 2)), TURNED),
        "reduce all f32": (_reduced("f32", (0, 1500), (0, 1)), LOOP),
        "reduce all bf16": (_reduced("bf16", (0, 1500), (0, 1)), LOOP),
        "reduce an odd vector": (_reduced("f32", (0,), (0,)), LOOP),
    }


def rows() -> Forms:
    """Normalisations and statistics, each one kernel."""
    found: Forms = {
        f"{form.replace('_', ' ')} {dtype}": (_fused(form, dtype, (0, 1500), (1,)), LOOP)
        for form in ("softmax", "log_softmax", "layer_norm", "rms_norm", "arg_max", "two_sums")
        for dtype in ("f32", "bf16")
    }
    for columns in (60, 1501, 12000, 30000, 50257):
        found[f"softmax of {columns}"] = (_fused("softmax", "f32", (0, columns), (1,)), LOOP)
    for columns in (197, 1501, 50257, 151936):
        found[f"softmax of {columns} bf16"] = (_fused("softmax", "bf16", (0, columns), (1,)), LOOP)
    found["layer norm of 1501 bf16"] = (_fused("layer_norm", "bf16", (0, 1501), (1,)), LOOP)
    found["rms norm of 4096 f16"] = (_fused("rms_norm", "f16", (0, 4096), (1,)), LOOP)
    found["arg max of 1501 bf16"] = (_fused("arg_max", "bf16", (0, 1501), (1,)), LOOP)
    found["softmax of heads"] = (_fused("softmax", "bf16", (0, 12, 200, 200), (3,)), LOOP)
    for dtype in ("f32", "bf16"):
        long = _fused("log_softmax", dtype, (0, 50257), (1,))
        found[f"log softmax of 50257 {dtype}"] = (long, LOOP)
    found["layer norm of 20001"] = (_fused("layer_norm", "f32", (0, 20001), (1,)), LOOP)
    found["layer norm of 50001"] = (_fused("layer_norm", "f32", (0, 50001), (1,)), LOOP)
    for columns in (32003, 40001):
        odd = _fused("layer_norm", "bf16", (0, columns), (1,))
        found[f"layer norm of {columns} bf16"] = (odd, LOOP)
    found["layer norm of 12000"] = (_fused("layer_norm", "f32", (0, 12000), (1,)), LOOP)
    return found


def _shape(size: int, dtype: str, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return `dims` with what makes an array of `size` bytes in the place of 0."""
    rest = prod(n for n in dims if n)
    count = size // DTYPES[dtype].size // rest
    return tuple(n or count | (rest == 1) for n in dims)  # a vector has an odd number of elements


def _reduced(dtype: str, dims: tuple[int, ...], reduced: tuple[int, ...]) -> Callable[[int], str]:
    def write(size: int) -> str:
        shape = _shape(size, dtype, dims)
        kept = ",".join(str(n) for d, n in enumerate(shape) if d not in reduced)
        whole, along = (",".join(map(str, part)) for part in (shape, reduced))
        return module(
            f"x = {dtype}[{whole}] parameter(0)\nz = {dtype}[] constant(0)\n"
            f"ROOT r = {dtype}[{kept}] reduce(x, z), dimensions={{{along}}}, to_apply=add",
            region("add", "add", dtype),
        )

    return write


def _fused(
    form: str, dtype: str, dims: tuple[int, ...], reduced: tuple[int, ...]
) -> Callable[[int], str]:
    return lambda size: fold_program(form, dtype, _shape(size, dtype, dims), reduced)
