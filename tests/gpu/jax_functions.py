"""Functions of JAX, with arguments, to call through `jax.jit` and through `hlo2graph.jax.jit`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, slots=True)
class Function:
    """What is called; `flags` are those of both jits."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    flags: dict[str, Any] = field(default_factory=dict)


def normal(*dims: int, scale: float = 0.1, dtype: Any = jnp.float32) -> np.ndarray:
    drawn = np.random.default_rng(sum(dims)).standard_normal(dims) * scale
    return drawn.astype(jnp.dtype(dtype))


def mlp() -> Function:
    def call(layers, x):
        for w, b in layers[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = layers[-1]
        return jax.nn.log_softmax(x @ w + b)

    sizes = (784, 512, 256, 10)
    layers = [(normal(m, n), normal(n)) for m, n in itertools.pairwise(sizes)]
    return Function(call, (layers, normal(8, 784)))


def train_mlp() -> Function:
    inner = mlp()

    def loss(layers, x, labels):
        picked = jnp.take_along_axis(inner.call(layers, x), labels[:, None], axis=1)
        return -picked.mean()

    def call(layers, x, labels):
        value, found = jax.value_and_grad(loss)(layers, x, labels)
        return jax.tree.map(lambda w, g: w - 0.01 * g, layers, found), value

    labels = np.arange(8, dtype=np.int32) % 10
    return Function(call, (*inner.args, labels), {"donate_argnums": 0})


def transformer_block() -> Function:
    heads, width, length = 4, 256, 128

    def norm(x, scale):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale

    def call(p, x):
        split = (norm(x, p["n1"]) @ p["qkv"]).reshape(length, 3, heads, width // heads)
        q, k, v = split[:, 0], split[:, 1], split[:, 2]
        scores = jnp.einsum("lhd,mhd->hlm", q, k) / 8.0
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        mixed = jnp.einsum("hlm,mhd->lhd", jax.nn.softmax(scores), v).reshape(length, width)
        x = x + mixed @ p["out"]
        return x + jax.nn.gelu(norm(x, p["n2"]) @ p["up"]) @ p["down"]

    weights = {
        "qkv": normal(width, 3 * width),
        "out": normal(width, width),
        "up": normal(width, 4 * width),
        "down": normal(4 * width, width),
        "n1": normal(width),
        "n2": normal(width),
    }
    return Function(call, (weights, normal(length, width)))


def decode_step() -> Function:
    heads, each, most, width = 8, 32, 256, 256
    put = jax.lax.dynamic_update_slice

    def call(cache, p, x, at):
        q, k, v = jnp.split(x @ p["qkv"], 3)
        zero = jnp.zeros_like(at)
        cache = {
            "k": put(cache["k"], k.reshape(1, heads, each), (at, zero, zero)),
            "v": put(cache["v"], v.reshape(1, heads, each), (at, zero, zero)),
        }
        scores = jnp.einsum("hd,mhd->hm", q.reshape(heads, each), cache["k"]) / 6.0
        weights = jax.nn.softmax(jnp.where(jnp.arange(most) <= at, scores, -jnp.inf))
        x = x + jnp.einsum("hm,mhd->hd", weights, cache["v"]).reshape(width) @ p["out"]
        return cache, x + jax.nn.silu(x @ p["up"]) @ p["down"]

    weights = {
        "qkv": normal(width, 3 * width),
        "out": normal(width, width),
        "up": normal(width, 4 * width),
        "down": normal(4 * width, width),
    }
    cache = {"k": normal(most, heads, each), "v": normal(most, heads, each)}
    args = (cache, weights, normal(width), np.int32(100))
    return Function(call, args, {"donate_argnums": 0})


def lstm_scan() -> Function:
    def call(xs, kernel, recurrent, bias):
        def step(state, x):
            h, c = state
            i, f, g, o = jnp.split(x @ kernel + h @ recurrent + bias, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((32, 64))
        return jax.lax.scan(step, (start, start), xs)

    return Function(call, (normal(16, 32, 64), normal(64, 256), normal(64, 256), normal(256)))


def conjugate_gradient() -> Function:
    def call(a, b):
        def step(state):
            x, r, p, rr, n = state
            ap = a @ p
            alpha = rr / (p @ ap)
            r = r - alpha * ap
            new = r @ r
            return x + alpha * p, r, r + new / rr * p, new, n + 1

        start = (jnp.zeros_like(b), b, b, b @ b, 0)
        return jax.lax.while_loop(lambda s: (s[3] > 1e-8) & (s[4] < 50), step, start)

    a = normal(128, 128)
    return Function(call, (a @ a.T + np.eye(128, dtype=np.float32), normal(128)))


def many_small_kernels() -> Function:
    def call(xs):
        found = []
        for x in xs:
            y = jax.nn.softmax(x, axis=0)
            found.append((jnp.sin(y) * jnp.cumsum(x, axis=1)).sum(0))
        return jnp.stack(found)

    return Function(call, ([normal(64, 64, scale=0.1 + n / 10) for n in range(16)],))


def wide_branches() -> Function:
    def call(x, ws):
        return sum(jnp.tanh(x @ w) for w in ws)

    return Function(call, (normal(64, 256), [normal(256, 256, scale=n / 100) for n in range(8)]))


def switch_branches() -> Function:
    def call(which, x, w):
        return jax.lax.switch(which, [lambda: x @ w, lambda: jnp.tanh(x), lambda: x * 2])

    return Function(call, (np.int32(1), normal(256, 256), normal(256, 256)))


def embedding_topk() -> Function:
    def call(table, ids, w):
        return jax.lax.top_k(jax.nn.softmax(table[ids] @ w), 5)

    ids = np.arange(64, dtype=np.int32) * 7 % 1000
    return Function(call, (normal(1000, 128), ids, normal(128, 1000)))


def dropout() -> Function:
    def call(key, x):
        return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0.0)

    return Function(call, (jax.random.key(0), normal(256, 512)))


def jacobi() -> Function:
    def call(grid):
        def step(_, g):
            near = g[:-2, 1:-1] + g[2:, 1:-1] + g[1:-1, :-2] + g[1:-1, 2:]
            return g.at[1:-1, 1:-1].set(near / 4)

        return jax.lax.fori_loop(0, 20, step, grid)

    return Function(call, (normal(256, 256),))


FUNCTIONS: dict[str, Callable[[], Function]] = {
    made.__name__: made
    for made in (
        *(mlp, train_mlp, transformer_block, decode_step, lstm_scan, conjugate_gradient),
        *(many_small_kernels, wide_branches, switch_branches, embedding_topk, dropout, jacobi),
    )
}
