"""Loops of narrow floats: widened and rounded two by two, moved as they lie."""

from __future__ import annotations

import numpy as np
import pytest
from needs import needs_gxx

from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from tests.emulation import EmulatedExecutable
from tests.emulation.plans import planned

COUNT = (1 << 16) + 3  # all patterns of 16 bits, and some that fill no lanes
QUIET = {"bfloat16": 0x40, "float8_e5m2": 0x03}  # bits that a NaN may get
NARROW = ("bf16", "f16", "f8e4m3fn", "f8e5m2")


def module(*lines: str) -> str:
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def converted(source: str, target: str) -> str:
    return module(f"x = {source}[{COUNT}] parameter(0)", f"ROOT r = {target}[{COUNT}] convert(x)")


def added(dtype: str) -> str:
    shape = f"{dtype}[{COUNT}]"
    return module(
        f"x = {shape} parameter(0)",
        f"y = {shape} parameter(1)",
        f"n = {shape} negate(x)",
        f"ROOT r = {shape} add(n, y)",
    )


def chosen(dtype: str) -> str:
    shape = f"{dtype}[{COUNT}]"
    return module(
        f"x = {shape} parameter(0)",
        f"y = {shape} parameter(1)",
        f"p = pred[{COUNT}] parameter(2)",
        f"ROOT r = {shape} select(p, x, y)",
    )


def kept_and_made(dtype: str) -> str:
    """Two results: one moves what the other one reads as well."""
    lines = [
        f"x = {dtype}[{COUNT}] parameter(0)",
        f"w = f32[{COUNT}] convert(x)",
        f"k = {dtype}[{COUNT}] reverse(x), dimensions={{0}}",
        f"ROOT r = ({dtype}[{COUNT}], f32[{COUNT}]) tuple(k, w)",
    ]
    return (
        f"HloModule m\nf {{\n{chr(10).join(lines)}\n}}\n"
        f"ENTRY e {{ x = {dtype}[{COUNT}] parameter(0)\n"
        f"ROOT r = ({dtype}[{COUNT}], f32[{COUNT}]) fusion(x), kind=kLoop, calls=f }}\n"
    )


PROGRAMS = {
    **{f"{a} to {b}": converted(a, b) for a in NARROW for b in NARROW if a != b},
    **{f"f32 to {b}": converted("f32", b) for b in NARROW},
    **{f"{a} added": added(a) for a in NARROW},
    **{f"{a} chosen": chosen(a) for a in NARROW},
    **{f"{a} kept and made": kept_and_made(a) for a in NARROW},
}


def patterns(dtype: np.dtype, seed: int) -> np.ndarray:
    """Return all values of a narrow type, or floats around those, in another order each time."""
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.integers(0, 2, COUNT).astype(bool)
    if dtype == np.float32:
        found = rng.standard_normal(COUNT) * 2.0 ** rng.integers(-20, 20, COUNT)
        found[::97] = np.resize((np.nan, np.inf, -np.inf, 464, 465, 61440, 65520, -0.0), 676)
        return found.astype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    return rng.permutation(np.resize(np.arange(1 << 16).astype(bits), COUNT)).view(dtype)


@pytest.fixture(scope="module")
def plans():
    with planned(PROGRAMS) as found:
        yield found


@needs_gxx
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_narrow_floats_agree_with_the_host(plans, name):
    found, kernels = plans
    plan = found[name]
    given = [patterns(b.shape.dtype.numpy, k) for k, b in enumerate(plan.inputs)]
    got = EmulatedExecutable(plan, kernels)(*given)
    for ours, theirs in zip(got, HostExecutable(plan)(*given), strict=True):
        if "chosen" in name or "kept" in name:  # NaNs as well, if they are quiet
            bits, quiet = np.dtype(f"u{ours.dtype.itemsize}"), QUIET.get(str(ours.dtype), 0)
            loud = np.isnan(theirs.astype(np.float32)) * quiet
            same = ours.view(bits) | loud.astype(bits) == theirs.view(bits) | loud.astype(bits)
            assert ours.dtype == np.float32 or same.all()
        wide = ours.astype(np.float32), theirs.astype(np.float32)
        np.testing.assert_array_equal(*wide)
        known = ~np.isnan(wide[0])
        assert (np.signbit(wide[0]) == np.signbit(wide[1]))[known].all()


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("f16 to bf16", ("hlo::two(", "hlo::pair<hlo::bf16>(v1, ")),
        ("f32 to f8e4m3fn", ("hlo::pairs_exactly<hlo::f8e4m3fn>(v1, ",)),
        ("bf16 added", ("hlo::pair<hlo::bf16>",)),
        ("f16 kept and made", ("const hlo::f16 b",)),
        ("f8e5m2 added", ("const hlo::u32*)(p1 + first))[3]", "hlo::u32*)(r0 + first))[3] = r0_")),
    ],
)
def test_lanes_go_two_by_two(plans, name, has):
    (source,) = kernels_of(plans[0][name]).values()
    assert all(words in source.text for words in has), source.text


def test_loads_stand_in_front_of_all_conversions(plans):
    (source,) = kernels_of(plans[0]["f16 added"]).values()
    lanes = source.text[: source.text.index("else if")]
    assert lanes.rindex("] = ") > lanes.rindex("= p1[") < lanes.index("hlo::two(")
