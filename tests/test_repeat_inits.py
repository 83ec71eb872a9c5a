"""Initial values that are not neutral count as often as in XLA on the CPU, by its own word."""

import numpy as np
import pytest
from rewriting import ADD, module_of
from xla import run_xla

import hlo2graph
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo.printer import format_module
from hlo2graph.passes.repeat_inits import repeat_inits

_REDUCE = """\
HloModule m
fold {{ a = {type}[] parameter(0) b = {type}[] parameter(1) {region} }}
fused {{ x = {type}[{dims}] parameter(0) i = {type}[] parameter(1)
  ROOT r = {type}[{kept}] reduce(x, i), dimensions={{{reduced}}}, to_apply=fold }}
ENTRY e {{ x = {type}[{dims}] parameter(0) i = {type}[] parameter(1) {entry} }}
"""
_ALONE = "ROOT r = {type}[{kept}] reduce(x, i), dimensions={{{reduced}}}, to_apply=fold"
_CALLED = "ROOT r = {type}[{kept}] call(x, i), to_apply=fused"
_LOOP = "ROOT r = {type}[{kept}] fusion(x, i), kind=kLoop, calls=fused"
_RESHAPED = (
    "y = {type}[60] reshape(x) ROOT r = {type}[] reduce(y, i), dimensions={{0}}, to_apply=fold"
)
_SPREAD = """y = {type}[6,50] broadcast(x), dimensions={{0}}
  ROOT r = {type}[6] reduce(y, i), dimensions={{1}}, to_apply=fold"""
_ADD, _HALF = "ROOT r = {type}[] add(a, b)", "h = {type}[] {op}(a, b) ROOT r = {type}[] add(h, b)"


def _text(dtype: str, dims: tuple[int, ...], reduced: set[int], region: str, entry: str) -> str:
    kept = ",".join(str(n) for d, n in enumerate(dims) if d not in reduced)
    parts = {
        "type": dtype,
        "dims": ",".join(map(str, dims)),
        "kept": kept,
        "reduced": ",".join(map(str, sorted(reduced))),
    }
    region, entry = (part.format(op="subtract", **parts) for part in (region, entry))
    return _REDUCE.format(region=region, entry=entry, **parts)


@pytest.mark.parametrize("entry", [_ALONE, _CALLED])
@pytest.mark.parametrize(
    ("dtype", "dims", "reduced", "region"),
    [
        ("f32", (3, 33), {1}, _ADD),
        ("f32", (3, 32), {1}, _ADD),
        ("f32", (63, 65), {0, 1}, _ADD),
        ("f32", (64, 64), {1}, _ADD),  # added up in another way
        ("s32", (100, 100), {0}, _ADD),
        ("s8", (10_000,), {0}, _ADD),
        ("bf16", (2, 100), {1}, _ADD),
        ("c64", (2, 100), {1}, _ADD),
        ("f32", (2, 100), {1}, "ROOT r = {type}[] multiply(b, a)"),
        ("u32", (2, 2000), {1}, "ROOT r = {type}[] multiply(a, b)"),
        ("s32", (2, 65), {1}, "ROOT r = {type}[] xor(a, b)"),
        ("s32", (2, 100), {1}, "ROOT r = {type}[] xor(a, b)"),
        ("s32", (2, 100), {1}, "ROOT r = {type}[] maximum(a, b)"),
        ("f32", (3, 40, 35), {0, 2}, "c = {type}[] abs(b) ROOT r = {type}[] maximum(a, c)"),
        ("s32", (3, 1100), {1}, _HALF),
    ],
)
def test_as_often_as_in_xla(
    dtype: str, dims: tuple[int, ...], reduced: set[int], region: str, entry: str
) -> None:
    text = _text(dtype, dims, reduced, region, entry)
    _agree(text, dims)


@pytest.mark.parametrize(("dims", "entry"), [((6, 10), _RESHAPED), ((6,), _SPREAD), ((50,), _LOOP)])
def test_what_xla_folds_in_another_way(dims: tuple[int, ...], entry: str) -> None:
    _agree(_text("s32", dims, {0}, _ADD, entry), dims)


def _agree(text: str, dims: tuple[int, ...]) -> None:
    run = hlo2graph.compile(text, backend="host")
    values = np.random.default_rng(0).integers(1, 3, dims).astype(run.inputs[0][1])
    start = np.asarray(3).astype(run.inputs[1][1])
    (expected,) = run_xla(text, [values, start])
    (found,) = run(values, start)
    np.testing.assert_allclose(found.astype(np.complex128), expected.astype(np.complex128), 1e-2)


@pytest.mark.parametrize("start", ["constant(0)", "parameter(1)"])
def test_neutral_values_are_left_alone(start: str) -> None:
    fused = (
        f"{ADD}fused {{ x = f32[2,40] parameter(0)\nz = f32[] {start}\n"
        "ROOT r = f32[2] reduce(x, z), dimensions={1}, to_apply=sum }"
    )
    operands = "x, n" if "parameter" in start else "x"
    module = module_of(
        f"""x = f32[2,40] parameter(0)
        n = f32[] constant(0)
        r = f32[2] fusion({operands}), kind=kInput, calls=fused""",
        fused,
    )
    assert repeat_inits(module) is module


def test_what_is_rewritten_stays() -> None:
    module = module_of(
        """x = f32[2,40] parameter(0)
        i = f32[] parameter(1)
        r = f32[2] reduce(x, i), dimensions={1}, to_apply=sum""",
        ADD,
    )
    made = repeat_inits(module)
    verify(made)
    assert "constant(3)" in format_module(made)
    assert repeat_inits(made) is made


def test_comparators_may_look_at_bits_of_whole_arrays() -> None:
    text = """
    before { a = f32[] parameter(0) b = f32[] parameter(1)
      c = s32[] bitcast-convert(a) d = s32[] bitcast-convert(b) k = s32[] constant(255)
      e = s32[] and(c, k) f = s32[] and(d, k) ROOT r = pred[] compare(e, f), direction=LT }
    ENTRY e { x = f32[2,3000] parameter(0)
      ROOT r = f32[2,3000] sort(x), dimensions={1}, is_stable=true, to_apply=before }
    """
    values = np.random.default_rng(0).standard_normal((2, 3000)).astype(np.float32)
    (found,) = hlo2graph.compile(text, backend="host")(values)
    np.testing.assert_array_equal(found, run_xla(text, [values])[0])
