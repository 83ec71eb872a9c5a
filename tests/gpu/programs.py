"""Programs of the kinds that people run, lowered by jax where they are measured.

They are there so that nothing is tuned to the programs whose text is at hand. Each is a function of
jax and arguments for it; `lowered` gives HLO text that knows no platform, and the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True, slots=True)
class Program:
    """HLO text and arguments to run it on."""

    name: str
    text: str
    arguments: tuple[np.ndarray, ...]


def lowered(name: str) -> Program:
    """Return one of PROGRAMS."""
    import jax

    with jax.enable_x64(False):
        function, arguments = PROGRAMS[name](np.random.default_rng(0))
        traced = jax.jit(function).trace(*arguments)
        text = traced.lower(lowering_platforms=("tpu",)).as_text("hlo")
    return Program(name, text, tuple(arguments))


def normal(rng: np.random.Generator, *dims: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(dims) * scale).astype(np.float32)


def transformer(dtype: str) -> Callable:
    """Return one layer of an encoder over 4 x 128 positions of width 512, 8 heads."""

    def make(rng: np.random.Generator) -> tuple[Callable, Arrays]:
        import jax
        import jax.numpy as jnp

        batch, length, width, heads = 4, 128, 512, 8

        def layer(x, qkv, out, up, down, scale):
            def norm(v):
                wide = v.astype(jnp.float32)
                centred = wide - wide.mean(-1, keepdims=True)
                spread = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
                return (centred * spread).astype(v.dtype) * scale

            split = (norm(x) @ qkv).reshape(batch, length, 3, heads, width // heads)
            q, k, v = (split[:, :, n] for n in range(3))
            scores = jnp.einsum("blhd,bmhd->bhlm", q, k) / np.sqrt(width // heads).astype(x.dtype)
            weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(x.dtype)
            x = x + jnp.einsum("bhlm,bmhd->blhd", weights, v).reshape(x.shape) @ out
            return x + jax.nn.gelu(norm(x) @ up) @ down

        shapes = [(batch, length, width), (width, 3 * width), (width, width), (width, 4 * width)]
        shapes += [(4 * width, width), (width,)]
        arrays = [normal(rng, *s, scale=0.05).astype(jnp.dtype(dtype)) for s in shapes]
        return layer, arrays

    return make


def decode(rng: np.random.Generator) -> tuple[Callable, Arrays]:
    """One position of two layers in bf16, behind a cache of 1024 positions: 4 x 16 heads of 64."""
    import jax
    import jax.numpy as jnp

    batch, most, heads, each = 4, 1024, 16, 64
    width = heads * each

    def step(x, at, keys, values, qkv, out, up, down):
        for layer in range(2):
            norm = x * jax.lax.rsqrt((x.astype(jnp.float32) ** 2).mean(-1, keepdims=True) + 1e-5)
            q, k, v = jnp.split(norm.astype(x.dtype) @ qkv[layer], 3, axis=-1)
            split = (batch, 1, heads, each)
            at_once = (layer, 0, at, 0, 0)
            keys = jax.lax.dynamic_update_slice(keys, k.reshape(1, *split), at_once)
            values = jax.lax.dynamic_update_slice(values, v.reshape(1, *split), at_once)
            scores = jnp.einsum("bhd,bmhd->bhm", q.reshape(batch, heads, each), keys[layer])
            seen = jnp.arange(most) <= at
            scores = jnp.where(seen, scores.astype(jnp.float32) / 8, -jnp.inf)
            weights = jax.nn.softmax(scores, axis=-1).astype(x.dtype)
            mixed = jnp.einsum("bhm,bmhd->bhd", weights, values[layer]).reshape(batch, width)
            x = x + mixed @ out[layer]
            x = x + jax.nn.silu(x @ up[layer]) @ down[layer]
        return x, keys, values

    shapes = [(batch, width), (2, batch, most, heads, each), (2, batch, most, heads, each)]
    shapes += [(2, width, 3 * width), (2, width, width), (2, width, 2 * width)]
    shapes += [(2, 2 * width, width)]
    x, *others = (normal(rng, *s, scale=0.05).astype(jnp.bfloat16) for s in shapes)
    return step, [x, np.array(700, np.int32), *others]


def lstm(rng: np.random.Generator) -> tuple[Callable, Arrays]:
    """512 steps of 8 sequences, 128 wide."""
    import jax
    import jax.numpy as jnp

    def run(xs, kernel, recurrent, bias):
        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ kernel + h @ recurrent + bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((8, 128), jnp.float32)
        return jax.lax.scan(step, (start, start), xs)

    shapes = [(512, 8, 128), (128, 512), (128, 512), (512,)]
    return run, [normal(rng, *s, scale=0.1) for s in shapes]


def resnet_gradients(rng: np.random.Generator) -> tuple[Callable, Arrays]:
    """A block of two convolutions over 8 images of 28 x 28 x 64, with its gradients."""
    import jax

    def convolved(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def loss(weights, x):
        def norm(v, scale, offset):
            mean, var = v.mean((0, 1, 2)), v.var((0, 1, 2))
            return (v - mean) * jax.lax.rsqrt(var + 1e-5) * scale + offset

        first, second, scale, offset = weights
        y = jax.nn.relu(norm(convolved(x, first), scale, offset))
        return (jax.nn.relu(norm(convolved(y, second), scale, offset) + x) ** 2).mean()

    def step(first, second, scale, offset, x):
        value, found = jax.value_and_grad(loss)((first, second, scale, offset), x)
        weights = (first, second, scale, offset)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, weights, found)

    shapes = [(3, 3, 64, 64), (3, 3, 64, 64), (64,), (64,), (8, 28, 28, 64)]
    return step, [normal(rng, *s, scale=0.05) for s in shapes]


def mobilenet_gradients(rng: np.random.Generator) -> tuple[Callable, Arrays]:
    """Three inverted residuals over 16 images of 56 x 56 x 24, one with strides, with gradients."""
    import jax
    import jax.numpy as jnp

    def convolved(x, w, stride=1, groups=1):
        labels = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=labels, feature_group_count=groups
        )

    def norm(v, scale):
        mean, var = v.mean((0, 1, 2)), v.var((0, 1, 2))
        return (v - mean) * jax.lax.rsqrt(var + 1e-3) * scale

    def block(x, weights, stride):
        wide, each, narrow, inner, outer = weights
        y = jnp.clip(norm(convolved(x, wide), inner), 0, 6)
        y = jnp.clip(norm(convolved(y, each, stride, y.shape[-1]), inner), 0, 6)
        return norm(convolved(y, narrow), outer)

    def loss(blocks, x):
        for number, weights in enumerate(blocks):
            y = block(x, weights, 2 if number == 1 else 1)
            x = y + x if y.shape == x.shape else y
        return (x**2).mean()

    def step(*arrays):
        *flat, x = arrays
        blocks = [flat[k : k + 5] for k in range(0, len(flat), 5)]
        value, found = jax.value_and_grad(loss)(blocks, x)
        return value, jax.tree.map(lambda w, g: w - 0.1 * g, blocks, found)

    shapes = []
    for before, after in ((24, 24), (24, 32), (32, 32)):
        wide = 6 * before
        shapes += [(1, 1, before, wide), (3, 3, 1, wide), (1, 1, wide, after), (wide,), (after,)]
    return step, [normal(rng, *s, scale=0.2) for s in [*shapes, (16, 56, 56, 24)]]


def sorting(rng: np.random.Generator) -> tuple[Callable, Arrays]:
    """Sorting, the largest of rows, and sums and largest of segments."""
    import jax
    import jax.numpy as jnp

    def run(x, rows, segments):
        order = jnp.argsort(x)
        largest, places = jax.lax.top_k(rows, 32)
        sums = jax.ops.segment_sum(x, segments, 512)
        most = jax.ops.segment_max(x, segments, 512)
        return x[order], order, largest, places, sums, most

    segments = rng.integers(0, 512, 1 << 15).astype(np.int32)
    return run, [normal(rng, 1 << 15), normal(rng, 64, 4096), segments]


def transforms(rng: np.random.Generator) -> tuple[Callable, Arrays]:
    """A filter by FFT, and a batch of systems solved by Cholesky."""
    import jax
    import jax.numpy as jnp

    def run(signal, response, a, b):
        spectrum = jnp.fft.rfft(signal) * jnp.fft.rfft(response)
        symmetric = a @ a.mT + 128 * jnp.eye(128, dtype=a.dtype)
        factor = jax.lax.linalg.cholesky(symmetric)
        half = jax.lax.linalg.triangular_solve(factor, b, left_side=True, lower=True)
        whole = jax.lax.linalg.triangular_solve(
            factor, half, left_side=True, lower=True, transpose_a=True
        )
        return jnp.fft.irfft(spectrum), whole

    shapes = [(64, 4096), (4096,), (16, 128, 128), (16, 128, 8)]
    return run, [normal(rng, *s) for s in shapes]


def scattering(rng: np.random.Generator) -> tuple[Callable, Arrays]:
    """Rows added to a table, largest kept, windows written, and a histogram."""
    import jax.numpy as jnp

    def run(table, at, rows, counts, cells):
        added = table.at[at].add(rows)
        kept = added.at[at[::-1]].max(rows * 2)
        gathered = kept[at] * rows
        return kept, gathered.sum(-1), counts.at[cells].add(1), jnp.sort(counts)

    return run, [
        normal(rng, 4096, 128),
        rng.integers(0, 4096, 2048).astype(np.int32),
        normal(rng, 2048, 128),
        np.zeros(1024, np.int32),
        rng.integers(0, 1024, 1 << 14).astype(np.int32),
    ]


def searching(rng: np.random.Generator) -> tuple[Callable, Arrays]:
    """A loop that ends when its state says so: power iteration until the value stays."""
    import jax
    import jax.numpy as jnp

    def run(a, x):
        def going(state):
            _, value, before, count = state
            return (abs(value - before) > 1e-4 * abs(value)) & (count < 200)

        def step(state):
            x, value, _, count = state
            y = a @ x
            new = x @ y
            return y * jax.lax.rsqrt(y @ y), new, value, count + 1

        start = (x, jnp.float32(0), jnp.float32(1), jnp.int32(0))
        return jax.lax.while_loop(going, step, start)

    half = normal(rng, 256, 256, scale=0.1)
    x = normal(rng, 256)
    return run, [half @ half.T, x / np.linalg.norm(x)]


PROGRAMS: dict[str, Callable[[np.random.Generator], tuple[Callable, Arrays]]] = {
    "transformer_bf16": transformer("bfloat16"),
    "transformer_f16": transformer("float16"),
    "decode_bf16": decode,
    "lstm_512": lstm,
    "resnet_gradients": resnet_gradients,
    "mobilenet_gradients": mobilenet_gradients,
    "sort_topk_segments": sorting,
    "fft_cholesky": transforms,
    "scatter_updates": scattering,
    "power_iteration": searching,
}
