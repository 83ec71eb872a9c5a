"""Attention as one kernel, as programs write it: masks, scales, shared keys, and what is no number.

Each program is lowered by JAX; what the kernel makes is compared with XLA's on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from needs import needs_gxx

import hlo2graph as h2g
from hlo2graph.backends.cuda.forms.attention import sharing as attention_sharing
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.ops.region import Attention, region_of
from hlo2graph.program.plan import Plan
from tests.emulation import Kernels
from tests.emulation.emulator import EmulatedExecutable

Arrays = Sequence[np.ndarray]
LOWEST = -1e9


def causal(queries: int, keys: int, ahead: int = 0) -> jax.Array:
    return jnp.arange(queries)[:, None] + ahead >= jnp.arange(keys)[None]


def weighed(scores: jax.Array, values: jax.Array, formula: str = "bhlm,bmhd->blhd") -> jax.Array:
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(values.dtype)
    return jnp.einsum(formula, weights, values)


def plain(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v)


def built_in_causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def scaled_after(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k, preferred_element_type=jnp.float32) / 8
    return weighed(jnp.where(causal(q.shape[1], k.shape[1]), scores, LOWEST), v)


def scaled_before(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("blhd,bmhd->bhlm", q / 8, k)
    return weighed(jnp.where(causal(q.shape[1], k.shape[1]), scores, -jnp.inf), v)


def hidden(fill: float) -> Callable[..., jax.Array]:
    """Return attention whose queries see no key before the third, so that some see none at all."""

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.einsum("blhd,bmhd->bhlm", q, k)
        return weighed(jnp.where(causal(q.shape[1], k.shape[1], -3), scores, fill), v)

    return attend


def hidden_first(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Return attention that sees no key before the fiftieth."""
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k)
    return weighed(jnp.where(jnp.arange(k.shape[1]) >= 50, scores, -jnp.inf), v)


def squared(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Return attention whose weights are squares, beside their sum and their largest."""
    squares = jnp.einsum("blhd,bmhd->bhlm", q, k).astype(jnp.float32) ** 2
    weights = squares / (squares.sum(-1, keepdims=True) + squares.max(-1, keepdims=True))
    return jnp.einsum("bhlm,bmhd->blhd", weights.astype(v.dtype), v)


def added(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array) -> jax.Array:
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k)
    return weighed(scores + mask[:, None, None, :], v)


def grouped(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    b, length, heads, width = q.shape
    q = q.reshape(b, length, k.shape[2], heads // k.shape[2], width)
    scores = jnp.einsum("blngd,bmnd->bnglm", q, k, preferred_element_type=jnp.float32) / 8
    scores = jnp.where(causal(length, k.shape[1], k.shape[1] - length), scores, -jnp.inf)
    return weighed(scores, v, "bnglm,bmnd->blngd").reshape(b, length, heads, width)


def unmasked(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Return attention whose scores lie key by key."""
    q = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[3])
    scores = jnp.einsum("blngd,bmnd->bnglm", q, k)
    return weighed(scores, v, "bnglm,bmnd->blngd")


def of_one(x: jax.Array) -> jax.Array:
    """Return attention of queries, keys and values that are parts of one array."""
    parts = (part.reshape(*x.shape[:2], 2, -1) for part in jnp.split(x, 3, -1))
    return plain(*parts)


def drawn(sizes: Sequence[int], kv_heads: int | None = None, dtype: str = "float32") -> list:
    """Return queries, keys and values of (batch, heads, queries, keys, width)."""
    b, h, q, k, d = sizes
    rng, shared = np.random.default_rng(0), kv_heads or h
    shapes = ((b, q, h, d), (b, k, shared, d), (b, k, shared, d))
    return [rng.standard_normal(s).astype(jnp.dtype(dtype)) for s in shapes]


def with_mask(sizes: Sequence[int], fill: float) -> list:
    """Return the same, and what is added to scores: the keys of one batch are all hidden."""
    mask = np.zeros((sizes[0], sizes[3]), np.float32)
    mask[0], mask[1, ::3] = fill, fill
    return [*drawn(sizes), mask]


def spoilt(sizes: Sequence[int], dtype: str = "float32") -> list:
    """Return queries, keys and values some of which are no finite numbers."""
    q, k, v = drawn(sizes, dtype=dtype)
    q[0, 2, 0, 3], k[0, 5, 1, 0], v[0, 7, 0, 1], v[0, -1, 1, 2] = np.nan, np.inf, np.inf, np.nan
    return [q, k, v]


CASES: dict[str, tuple[Callable, Arrays]] = {
    "plain": (plain, drawn((2, 3, 20, 45, 24))),
    "one-query": (plain, drawn((2, 3, 1, 45, 24))),
    "more-threads-than-divide-keys": (plain, drawn((1, 3, 1, 67, 8))),
    "the-same-of-two-rows": (plain, drawn((1, 1, 2, 300, 8), dtype="bfloat16")),
    "built-in-grouped": (built_in_causal, drawn((1, 6, 33, 33, 16), kv_heads=2)),
    "scaled-after": (scaled_after, drawn((1, 3, 19, 67, 40))),
    "scaled-before": (scaled_before, drawn((1, 3, 35, 35, 8))),
    "none-seen": (hidden(-np.inf), drawn((1, 2, 20, 40, 16))),
    "none-seen-few": (hidden(-np.inf), drawn((1, 2, 5, 40, 16))),
    "added": (added, with_mask((2, 2, 18, 50, 16), -np.inf)),
    "added-finite": (added, with_mask((2, 2, 18, 50, 16), LOWEST)),
    "keys-apart-grouped": (unmasked, drawn((1, 6, 21, 45, 16), kv_heads=2)),
    "no-numbers": (scaled_after, spoilt((1, 2, 20, 40, 16))),
    "no-numbers-few": (plain, spoilt((1, 2, 4, 40, 16))),
}
WARPS = {  # of which warps may have rows of their own
    "of-one": (of_one, [drawn((2, 1, 69, 69, 192), dtype="bfloat16")[0][:, :, 0]]),
    "wide": (plain, drawn((1, 2, 17, 70, 100), dtype="bfloat16")),
    "built-in-causal-f16": (built_in_causal, drawn((1, 1, 66, 66, 40), dtype="float16")),
    "grouped-bf16": (grouped, drawn((1, 6, 21, 85, 16), kv_heads=2, dtype="bfloat16")),
    "late-bf16": (hidden_first, drawn((1, 1, 16, 100, 16), dtype="bfloat16")),
    "not-a-softmax-bf16": (squared, drawn((1, 2, 17, 45, 16), dtype="bfloat16")),
    "none-seen-bf16": (hidden(-np.inf), drawn((1, 2, 20, 70, 16), dtype="bfloat16")),
    "no-numbers-bf16": (scaled_after, spoilt((1, 2, 20, 70, 16), "bfloat16")),
    "causal-f32": (built_in_causal, drawn((1, 1, 66, 66, 40))),
    "not-a-softmax-f32": (squared, drawn((1, 2, 17, 45, 16))),
    "no-numbers-f32": (scaled_after, spoilt((1, 2, 20, 70, 16))),
}


CLUSTERS = {  # of blocks that share out keys
    "keys-apart": (unmasked, drawn((1, 4, 21, 270, 16), kv_heads=2, dtype="bfloat16")),
    "late": (hidden_first, drawn((1, 1, 16, 300, 16), dtype="float16")),
    "wide-apart": (hidden(-np.inf), drawn((1, 1, 17, 260, 100), dtype="bfloat16")),
}


def planned(name: str) -> Plan:
    function, arrays = (CASES | WARPS | CLUSTERS)[name]
    traced = jax.jit(function).trace(*arrays)
    return h2g.plan(traced.lower(lowering_platforms=("tpu",)).as_text("hlo"), target="sm_90")


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    with jax.enable_x64(False):
        return {name: planned(name) for name in CASES | WARPS | CLUSTERS}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_becomes_one_kernel(plans: dict[str, Plan], name: str) -> None:
    computations = plans[name].computations.values()
    assert sum(isinstance(region_of(c), Attention) for c in computations) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grouped-bf16", "keys-apart-grouped", "built-in-grouped"])
def test_the_result_lies_as_it_is_read(plans: dict[str, Plan], name: str) -> None:
    assert len(plans[name].body.thunks) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("built-in-causal-f16", [True]),
        ("grouped-bf16", [True]),
        ("late-bf16", [False]),
        ("added", []),
        ("plain", []),
    ],
)
def test_masks_end_where_one_key_tells(
    plans: dict[str, Plan], name: str, first: list[bool]
) -> None:
    regions = [region_of(c) for c in plans[name].computations.values()]
    [weighing] = [r.weighing for r in regions if isinstance(r, Attention)]
    assert [mask.is_first for mask in weighing.masks] == first


@pytest.mark.slow
@needs_gxx
def test_it_makes_what_xla_makes(plans: dict[str, Plan]) -> None:
    agrees(plans, CASES)


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize(
    ("many", "names"),
    [
        (0, ("wide", "grouped-bf16", "not-a-softmax-bf16", "no-numbers-bf16", "no-numbers-f32")),
        (0, ("not-a-softmax-f32", "causal-f32")),
        (
            1 << 20,
            ("of-one", "built-in-causal-f16", "late-bf16", "none-seen-bf16", "no-numbers-bf16"),
        ),
        (1 << 20, ("causal-f32", "no-numbers-f32")),
    ],
)
def test_warps_do_with_rows_of_their_own_or_shared_ones(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch, many: int, names: Sequence[str]
) -> None:
    monkeypatch.setattr(attention_sharing, "MANY", many)
    for name in names:
        texts = [kernel.text for kernel in kernels_of(plans[name]).values()]
        assert any("u32 kept[" in text for text in texts)
        assert any("largest[warp]" in text for text in texts) == (many > 0)
    agrees(plans, {name: WARPS[name] for name in names})


@pytest.mark.slow
@needs_gxx
def test_blocks_of_a_cluster_share_out_keys(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MANY", 1 << 20), ("MOST_WARPS", 4), ("FEWEST_CHUNKS", 1)):
        monkeypatch.setattr(attention_sharing, name, value)
    names = ("keys-apart", "late", "wide-apart")
    for name in names:
        [text] = [kernel.text for kernel in kernels_of(plans[name]).values()]
        assert "hlo::cluster_meets" in text
    agrees(plans, {name: CLUSTERS[name] for name in names})


def agrees(plans: dict[str, Plan], cases: dict[str, tuple[Callable, Arrays]]) -> None:
    kernels = Kernels([plans[name] for name in cases], precise=False)
    for name, (function, arrays) in cases.items():
        plan = plans[name]
        [got] = EmulatedExecutable(plan, kernels)(*arrays)
        with jax.enable_x64(False):  # in f32: XLA on the CPU takes no f16 whose sums are f32
            want = np.asarray(jax.jit(function)(*(a.astype(np.float32) for a in arrays)))
        dtype = plan.outputs[0].shape.dtype
        found = compare(got, want.astype(got.dtype), tolerance_for(dtype, tf32=True), name)
        assert found.ok, str(found)
        assert np.array_equal(np.isnan(got.astype(np.float32)), np.isnan(want.astype(np.float32)))
