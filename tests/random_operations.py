"""Random modules of one operation each, of every opcode that XLA runs on the CPU.

Element types, sizes (0 and 1 among them), layouts and attributes are drawn in their full
generality; `random_operation(rnd)` returns the text. Its results are XLA's within the tolerances
for floats, and bit for bit otherwise, for arguments as `random_arguments` draws them.
"""

from __future__ import annotations

import random
from math import prod

import numpy as np
from random_devices import Devices
from random_elements import ALL, COMPLEX, FLOATS, INTEGERS, Elements
from random_folds import Folds
from random_indexing import Indexing
from random_rare import Rare

import hlo2graph as h2g
from hlo2graph.hlo import DTYPES, Shape


def random_operation(rnd: random.Random, kind: str | None = None) -> str:
    """Return the text of a module with an operation of any kind, or of this one."""
    writer = _Operation(rnd)
    while not writer.lines:
        getattr(writer, kind or rnd.choice(KINDS))()
    return writer.text()


def random_arguments(text: str, rnd: random.Random) -> list[np.ndarray]:
    """Return multiples of a half, few enough that most sums of them are exact."""
    rng = np.random.default_rng(rnd.getrandbits(32))
    shapes = [p.shape for p in h2g.parse(text).entry.parameters]
    return [_argument(shape, rng) for shape in shapes if isinstance(shape, Shape)]


def with_calls(text: str) -> str:
    """Return the text with its fusions as calls: XLA takes fusions only from its own passes."""
    return text.replace(" fusion(", " call(").replace("kind=kLoop, calls=", "to_apply=")


def _argument(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    dtype = shape.dtype
    if dtype.is_integer:
        low, high = dtype.limits
        small = np.asarray(rng.integers(max(low, -6), min(high, 7) + 1, shape.dims))
        if rng.random() < 0.2:
            whole = np.int64 if low else np.uint64
            ends = np.array([low, high, high // 2], whole)[rng.integers(0, 3, shape.dims)]
            small = np.where(rng.random(shape.dims) < 0.3, ends, small.astype(whole))
        return np.asarray(small).astype(np.int64 if low else np.uint64).astype(dtype.numpy)
    if dtype.name == "pred":
        return rng.integers(0, 2, shape.dims).astype(np.bool_)
    halves = rng.integers(-6, 7, shape.dims) / 2
    if dtype.is_complex:
        halves = halves + 1j * rng.integers(-6, 7, shape.dims) / 2
    return np.asarray(halves).astype(dtype.numpy)


class _Operation(Devices, Elements, Folds, Indexing, Rare):
    """Writes one operation into the module: each method but the helpers is a kind."""

    def convert(self) -> None:
        x = self.array(self.pick((*INTEGERS, *FLOATS, "pred")))
        self.root(self.pick(ALL), x.dims, f"convert({x.name})")

    def bitcast_convert(self) -> None:
        widths = {name: DTYPES[name].bits for name in (*INTEGERS, *FLOATS)}
        source, target = self.pick(tuple(widths)), self.pick(tuple(widths))
        dims = self.sizes()
        ratio = widths[target] / widths[source]
        given = (*dims, int(ratio)) if ratio > 1 else dims
        x = self.given(source, given)
        self.root(
            target, (*dims, int(1 / ratio)) if ratio < 1 else dims, f"bitcast-convert({x.name})"
        )

    def reduce_precision(self) -> None:
        x = self.array(self.pick(FLOATS))
        kept = f"exponent_bits={self.rnd.randint(1, 11)}, mantissa_bits={self.rnd.randint(0, 24)}"
        self.root(x.dtype, x.dims, f"reduce-precision({x.name}), {kept}")

    def broadcast(self) -> None:
        dims = self.sizes()
        into = sorted(self.rnd.sample(range(len(dims)), self.rnd.randint(0, len(dims))))
        x = self.given(self.pick(ALL), tuple(dims[d] for d in into))
        self.root(x.dtype, dims, f"broadcast({x.name}), dimensions={self.braced(into)}")

    def reshape(self) -> None:
        x = self.array(self.pick(ALL))
        dims = [*x.dims, *[1] * self.rnd.randint(0, 2)]
        self.rnd.shuffle(dims)
        flat = (prod(x.dims),)
        self.root(x.dtype, flat if self.chance(0.3) else tuple(dims), f"reshape({x.name})")

    def transpose(self) -> None:
        x = self.array(self.pick(ALL))
        order = self.rnd.sample(range(len(x.dims)), len(x.dims))
        turned = tuple(x.dims[d] for d in order)
        self.root(x.dtype, turned, f"transpose({x.name}), dimensions={self.braced(order)}")

    def reverse(self) -> None:
        x = self.array(self.pick(ALL))
        dims = self.rnd.sample(range(len(x.dims)), self.rnd.randint(0, len(x.dims)))
        self.root(x.dtype, x.dims, f"reverse({x.name}), dimensions={self.braced(dims)}")

    def copy(self) -> None:
        x = self.array(self.pick(ALL))
        self.root(x.dtype, x.dims, f"copy({x.name})")

    def slice(self) -> None:
        x = self.array(self.pick(ALL))
        cuts, dims = [], []
        for size in x.dims:
            start = self.rnd.randint(0, size)
            limit, stride = self.rnd.randint(start, size), self.rnd.randint(1, 3)
            cuts.append(f"[{start}:{limit}:{stride}]")
            dims.append(-(-(limit - start) // stride))
        self.root(x.dtype, tuple(dims), f"slice({x.name}), slice={{{', '.join(cuts)}}}")

    def pad(self) -> None:
        x = self.array(self.pick(ALL), least=1)
        value = self.given(x.dtype, ())
        sides, dims = [], []
        for size in x.dims:
            inner = self.rnd.randint(0, 2)
            spread = size + max(size - 1, 0) * inner
            low = self.rnd.randint(-1 if spread > 1 else 0, 2)
            high = self.rnd.randint(-1 if spread + low > 1 else 0, 2)
            sides.append(f"{low}_{high}_{inner}")
            dims.append(spread + low + high)
        self.root(x.dtype, tuple(dims), f"pad({x.name}, {value.name}), padding={'x'.join(sides)}")

    def concatenate(self) -> None:
        joined = [d for d in ALL if DTYPES[d].bits != 2]  # of which XLA dies
        x = self.array(self.pick(joined), least=1)
        along = self.rnd.randrange(len(x.dims))
        parts = [x]
        for _ in range(self.rnd.randint(0, 2)):
            dims = [*x.dims]
            dims[along] = self.rnd.randint(0, 3)
            parts.append(self.given(x.dtype, tuple(dims)))
        dims = [*x.dims]
        dims[along] = sum(part.dims[along] for part in parts)
        names = ", ".join(part.name for part in parts)
        self.root(x.dtype, tuple(dims), f"concatenate({names}), dimensions={{{along}}}")

    def iota(self) -> None:
        dims = self.sizes(least=1)
        along = self.rnd.randrange(len(dims))
        zeros = [d for d in FLOATS if d != "f8e8m0fnu"]  # which has none, so XLA takes any
        dtype = self.pick((*INTEGERS, *zeros, *COMPLEX))
        self.root(dtype, dims, f"iota(), iota_dimension={along}")

    def dynamic_slice(self) -> None:
        x = self.array(self.pick(ALL), least=1)
        dims = tuple(self.rnd.randint(0, n) for n in x.dims)
        names = ", ".join([x.name, *self._starts(len(dims))])
        sizes = self.braced(dims)
        self.root(x.dtype, dims, f"dynamic-slice({names}), dynamic_slice_sizes={sizes}")

    def dynamic_update_slice(self) -> None:
        x = self.array(self.pick(ALL))
        part = self.given(x.dtype, tuple(self.rnd.randint(0, n) for n in x.dims))
        names = ", ".join([x.name, part.name, *self._starts(len(x.dims))])
        self.root(x.dtype, x.dims, f"dynamic-update-slice({names})")

    def _starts(self, count: int) -> list[str]:
        dtype = self.pick(("s32", "s64", "u32", "s8", "u8"))
        return [self.given(dtype, ()).name for _ in range(count)]

    def dependency(self) -> None:
        x = self.array(self.pick(ALL))
        self.lines.append("before = token[] after-all()")
        self.root(x.dtype, x.dims, f"add-dependency({x.name}, before)")

    def bounded(self) -> None:
        size = self.rnd.randint(1, 9)
        x, count = self.given("s32", (size,)), self.given("s32", ())
        self.lines += [
            "low = s32[] constant(0)",
            f"high = s32[] constant({size})",
            f"count = s32[] clamp(low, {count.name}, high)",
            f"part = s32[<={size}] set-dimension-size({x.name}, count), dimensions={{0}}",
        ]
        self.root(
            "s32", (), f"reduce(part, low), dimensions={{0}}, to_apply={self.region('s32', 'add')}"
        )

    def get_dimension_size(self) -> None:
        x = self.array(self.pick(ALL), least=1)
        along = self.rnd.randrange(len(x.dims))
        self.root("s32", (), f"get-dimension-size({x.name}), dimensions={{{along}}}")

    def rng_bit_generator(self) -> None:
        algorithm = self.pick(("rng_default", "rng_philox", "rng_three_fry"))
        state = self.given("u64", (2 if algorithm == "rng_three_fry" else self.pick((2, 3)),))
        dims = self.sizes()
        bits = self.pick(("u8", "u16", "u32", "u64"))
        call = f"rng-bit-generator({state.name}), algorithm={algorithm}"
        self.several([(state.dtype, state.dims), (bits, dims)], call)


_NO_THUNK = "XLA:CPU has no thunk for it"
_NOT_HLO = "XLA's compiler is given StableHLO and MHLO, which have no such operation"
_HOST = "XLA waits for a host that sends, or fetches, what nobody does here"
UNDRAWN = {
    "async-update": "of what XLA:CPU begins, collectives, it takes none on",
    "bitcast": "XLA refuses those that it has not made itself, once layouts are chosen",
    "collective-broadcast": _NO_THUNK,
    "copy-done": _NO_THUNK,
    "copy-start": _NO_THUNK,
    "infeed": _HOST,
    "mulhi": _NOT_HLO,
    "outfeed": _HOST,
    "ragged-all-to-all": "XLA:CPU dies of it",
    "ragged-dot": _NO_THUNK,
    "recv": _NO_THUNK,
    "recv-done": _NO_THUNK,
    "scaled-dot": _NOT_HLO,
    "send": _NO_THUNK,
    "send-done": _NO_THUNK,
}
"""Opcodes that XLA:CPU cannot run as it is called here, each with the reason."""
UNDRAWN_TYPES = {
    "opaque": "it holds no elements",
    **dict.fromkeys(("f6e2m3fn", "f6e3m2fn"), "XLA:CPU has no code for it"),
    "s1": "XLA's compiler is given StableHLO, where it is pred",
    "u1": "XLA's compiler is given StableHLO, which has no such type",
}
"""Element types that are never drawn, each with the reason."""

_FAMILIES = (_Operation, Devices, Elements, Folds, Indexing, Rare)
_OPCODES = {
    "unary": 14,
    "binary": 12,
    "complex_unary": 6,
    "hyperbolic": 3,
    "compare": 2,
    "convert": 2,
}
KINDS = tuple(
    name
    for family in _FAMILIES
    for name in vars(family)
    if name[0] != "_"
    for _ in range(_OPCODES.get(name, 1))
)
