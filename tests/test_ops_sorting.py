"""sort and topk against XLA, bit for bit; also orderings that no key gives."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from agreement import agree, module, refused, run_host

import hlo2graph
from hlo2graph.ops import OPS
from hlo2graph.ops.scalar_region import is_elementwise_region

COMPARATORS = {
    "up": "ROOT r = pred[] compare(a, b), direction=LT",
    "down": "ROOT r = pred[] compare(a, b), direction=GT",
    "total up": "ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER",
    "total down": "ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER",
    "absolute": "c = f32[] abs(a) d = f32[] abs(b) ROOT r = pred[] compare(c, d), direction=LT",
}
SPECIAL = np.array(
    [1, -0.0, 0.0, np.nan, -np.inf, np.inf, 3, np.copysign(np.nan, -1), 3, 0.0, -0.0, -2, np.nan],
    np.float32,
)


def comparator(body: str) -> str:
    return f"cmp {{ a = f32[] parameter(0) b = f32[] parameter(1) {body} }}"


def sort(dims: str, axis: int, body: str) -> str:
    entry = (
        f"x = f32[{dims}] parameter(0) "
        f"ROOT r = f32[{dims}] sort(x), dimensions={{{axis}}}, is_stable=true, to_apply=cmp"
    )
    return module(entry, comparator(body))


@pytest.mark.parametrize(
    ("dims", "axis"), [("7", 0), ("5,33", 1), ("33,4", 0), ("2,9,3", 1), ("1", 0), ("3,0", 1)]
)
@pytest.mark.parametrize("name", COMPARATORS)
def test_sort(name, dims, axis):
    agree(sort(dims, axis, COMPARATORS[name]), tolerance=0)


@pytest.mark.parametrize("name", ["total up", "total down"])
def test_total_order_of_special_values(name):
    agree(sort("13", 0, COMPARATORS[name]), [SPECIAL], tolerance=0)


def test_equal_keys_keep_their_order():
    text = module(
        "x = s32[300] parameter(0) i = s32[300] iota(), iota_dimension=0 "
        "ROOT r = (s32[300], s32[300]) sort(x, i), dimensions={0}, is_stable=true, to_apply=cmp",
        "cmp { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] parameter(2) "
        "d = s32[] parameter(3) ROOT r = pred[] compare(a, b), direction=LT }",
    )
    x = np.random.default_rng(0).integers(0, 4, 300).astype(np.int32)
    _, order = agree(text, [x], tolerance=0)
    assert order.tolist() == np.argsort(x, kind="stable").tolist()


def test_keys_of_unlike_directions():
    """No single key gives this order, so it is merged by the comparator."""
    text = module(
        "x = s32[4,50] parameter(0) y = f32[4,50] parameter(1) ROOT r = (s32[4,50], f32[4,50]) "
        "sort(x, y), dimensions={1}, is_stable=true, to_apply=cmp",
        "cmp { a = s32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2) "
        "d = f32[] parameter(3) first = pred[] compare(a, b), direction=GT "
        "tie = pred[] compare(a, b), direction=EQ second = pred[] compare(c, d), direction=LT "
        "both = pred[] and(tie, second) ROOT r = pred[] or(first, both) }",
    )
    agree(text, tolerance=0)


def test_comparator_that_is_no_ordering_still_permutes():
    """NaN compares false with all, so LT is no ordering of these; nothing may get lost."""
    for _ in range(3):
        x = np.random.default_rng(1).permutation(np.concatenate([SPECIAL] * 5))
        (got,) = run_host(sort("65", 0, COMPARATORS["up"]), [x])
        assert sorted(got.tobytes()) == sorted(x.tobytes())


def test_comparator_with_a_loop_runs_pair_by_pair():
    regions = (
        "more { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0 "
        "n = s32[] constant(1) ROOT l = pred[] compare(i, n), direction=LT }",
        "flip { p = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0 "
        "one = s32[] constant(1) j = s32[] add(i, one) v = f32[] get-tuple-element(p), index=1 "
        "w = f32[] negate(v) ROOT t = (s32[], f32[]) tuple(j, w) }",
        comparator(
            "z = s32[] constant(0) t = (s32[], f32[]) tuple(z, a) "
            "w = (s32[], f32[]) while(t), condition=more, body=flip "
            "c = f32[] get-tuple-element(w), index=1 d = f32[] negate(b) "
            "ROOT r = pred[] compare(c, d), direction=LT"
        ),
    )
    entry = "x = f32[2,9] parameter(0) ROOT r = f32[2,9] sort(x), dimensions={1}, to_apply=cmp"
    x = np.random.default_rng(2).standard_normal((2, 9)).astype(np.float32)
    (got,) = run_host(module(entry, *regions), [x])
    assert got.tolist() == (-np.sort(-x, axis=1)).tolist()


def values(dtype: np.dtype) -> np.ndarray:
    x = np.random.default_rng(3).integers(0, 5, (6, 40)).astype(np.float32)
    if dtype.kind == "c":
        return (x + 1j * x[::-1]).astype(dtype)
    if dtype.kind in "fV" and "int" not in dtype.name:
        x[x == 4], x[x == 3] = np.nan, -0.0
    return x.astype(dtype)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.complex64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.uint8, bool]
)
@pytest.mark.parametrize("function", [jnp.sort, jnp.argsort])
def test_as_jax_lowers_it(dtype, function):
    """JAX's comparators take -0 for 0 and put NaN last."""
    x = values(np.dtype(dtype))
    text = jax.jit(lambda a: function(a, axis=1)).lower(x).as_text("hlo")
    agree(text, [x], tolerance=0)


def test_two_keys_as_jax_lowers_them():
    x = values(np.dtype(np.float32))
    text = (
        jax.jit(lambda a, b: jax.lax.sort((a, b, a + b), dimension=0, num_keys=2))
        .lower(x, x)
        .as_text("hlo")
    )
    agree(text, [x, x[::-1].copy()], tolerance=0)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64", "s32", "u8"])
@pytest.mark.parametrize("largest", ["true", "false"])
def test_topk(dtype, largest):
    numbers = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f64": np.float64}
    x = SPECIAL.astype(numbers[dtype]) if dtype in numbers else np.arange(13)[::-1] // 2
    x = np.stack([x, x[::-1]]).astype({"s32": np.int32, "u8": np.uint8}.get(dtype, x.dtype))
    text = module(
        f"x = {dtype}[2,13] parameter(0) "
        f"ROOT r = ({dtype}[2,5], s32[2,5]) topk(x), k=5, largest={largest}"
    )
    agree(text, [x], tolerance=0)


def test_topk_custom_call():
    text = module(
        "x = f32[13] parameter(0) ROOT r = (f32[5], s32[5]) custom-call(x), "
        'custom_call_target="TopK", api_version=API_VERSION_TYPED_FFI'
    )
    value, at = run_host(text, [SPECIAL])
    assert at.tolist() == [3, 12, 5, 6, 8]
    np.testing.assert_array_equal(value, SPECIAL[at])


def test_unknown_custom_call_is_refused_by_name():
    text = module('ROOT r = f32[2] custom-call(), custom_call_target="my_vendor_op"')
    reason = OPS["custom-call"].why_not(hlo2graph.parse(text).entry.result)
    assert "my_vendor_op" in (reason or "")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("dimensions={2}, to_apply=cmp", "dimensions has 2, out of range for rank 2"),
        ("dimensions={0,1}, to_apply=cmp", "needs one dimension in the attribute"),
        ("dimensions={0}", "needs the attribute to_apply"),
        ("dimensions={0}, to_apply=sum", r"must return pred\[\], it returns f32\[\]"),
    ],
)
def test_sort_refusals(attributes, message):
    entry = f"x = f32[2,9] parameter(0) ROOT r = f32[2,9] sort(x), {attributes}"
    refused(
        module(
            entry, comparator(COMPARATORS["up"]), "sum" + comparator("ROOT r = f32[] add(a, b)")[3:]
        ),
        message,
    )


def test_topk_cannot_take_more_than_there_are():
    text = module("x = f32[3] parameter(0) ROOT r = (f32[4], s32[4]) topk(x), k=4, largest=true")
    refused(text, "k=4 is out of range")


def test_a_comparator_of_bits_sorts_many_at_once():
    """XLA:GPU's dumps order floats by their bits; one call a pair would take a minute here."""
    down = """down { a = f32[] parameter(0) b = f32[] parameter(1)
      i = s32[] bitcast(a) j = s32[] bitcast(b) most = s32[] constant(2147483647)
      zero = s32[] constant(0) k = pred[] compare(i, zero), direction=LT
      l = pred[] compare(j, zero), direction=LT m = s32[] xor(most, i) n = s32[] xor(most, j)
      o = s32[] select(k, m, i) p = s32[] select(l, n, j)
      ROOT r = pred[] compare(o, p), direction=GT }"""
    x = np.random.default_rng(0).standard_normal((16, 2000)).astype(np.float32)
    text = module(
        "x = f32[16,2000] parameter(0) "
        "ROOT r = f32[16,2000] sort(x), dimensions={1}, to_apply=down",
        down,
    )
    assert is_elementwise_region(hlo2graph.parse(text).computations, "down")
    assert (run_host(text, [x])[0] == -np.sort(-x, axis=1)).all()
