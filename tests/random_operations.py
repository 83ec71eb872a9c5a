"""Random modules of one operation each, of every opcode that XLA runs on the CPU.

Element types, sizes (0 and 1 among them), layouts and attributes are drawn in their full
generality; `random_operation(rnd)` returns the text. Its results are XLA's within the tolerances
for floats, and bit for bit otherwise, for arguments as `random_arguments` draws them.
"""

from __future__ import annotations

import random
from math import prod

import numpy as np
from random_folds import Folds
from random_indexing import Indexing

import hlo2graph as h2g
from hlo2graph.hlo import Shape

SIGNED = ("s8", "s16", "s32", "s64", "s4")
UNSIGNED = ("u8", "u16", "u32", "u64", "u4")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("f32", "f32", "f64", "bf16", "f16", "f8e5m2", "f8e4m3fn")
COMPLEX = ("c64", "c128")
ALL = (*INTEGERS, *FLOATS, *COMPLEX, "pred")
_BIT = ("not", "count-leading-zeros")
_SHIFTS = ("shift-left", "shift-right-arithmetic", "shift-right-logical")
_ROUND = ("floor", "ceil", "round-nearest-afz", "round-nearest-even", "sign", "abs", "negate")
_CURVES = ("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "sqrt")
_MORE = ("rsqrt", "cbrt", "tanh", "sine", "cosine", "tan", "erf")
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum")


def random_operation(rnd: random.Random) -> str:
    """Return the text of a module."""
    writer = _Operation(rnd)
    while not writer.lines:
        getattr(writer, rnd.choice(KINDS))()
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


class _Operation(Folds, Indexing):
    """Writes one operation into the module: each method but the helpers is a kind."""

    def unary(self) -> None:
        wide = tuple(
            d for d in INTEGERS if d != "s4"
        )  # of s4, XLA counts bits of the sign's copies
        kinds = ((FLOATS, (*_ROUND, *_CURVES, *_MORE)), (INTEGERS, _BIT), (wide, ("popcnt",)))
        dtypes, opcodes = self.pick(
            (*kinds, (SIGNED, ("negate", "abs", "sign")), (("pred",), ("not",)))
        )
        x = self.array(self.pick(dtypes))
        self.root(x.dtype, x.dims, f"{self.pick(opcodes)}({x.name})")

    def complex_parts(self) -> None:
        x = self.array(self.pick(COMPLEX))
        part = {"c64": "f32", "c128": "f64"}[x.dtype]
        self.root(part, x.dims, f"{self.pick(('real', 'imag', 'abs'))}({x.name})")

    def complex_whole(self) -> None:
        x = self.array(self.pick(("f32", "f64")))
        y = self.given(x.dtype, x.dims)
        self.root({"f32": "c64", "f64": "c128"}[x.dtype], x.dims, f"complex({x.name}, {y.name})")

    def binary(self) -> None:
        bits = ("and", "or", "xor")
        dtypes, opcodes = self.pick(
            (
                (INTEGERS, (*_ARITHMETIC, *bits, *_SHIFTS, "power")),
                (FLOATS, (*_ARITHMETIC, "atan2", "power")),
                (COMPLEX, ("add", "subtract", "multiply", "maximum", "minimum")),
                (("pred",), (*bits, "add", "multiply", "maximum", "minimum")),
            )
        )
        x = self.array(self.pick(dtypes))
        y = self.given(x.dtype, x.dims)
        self.root(x.dtype, x.dims, f"{self.pick(opcodes)}({x.name}, {y.name})")

    def compare(self) -> None:
        x = self.array(self.pick(ALL))
        y = self.given(x.dtype, x.dims)
        way = self.pick(("EQ", "NE", "LT", "LE", "GT", "GE"))
        order = ", type=TOTALORDER" if x.dtype in FLOATS and self.chance(0.5) else ""
        self.root("pred", x.dims, f"compare({x.name}, {y.name}), direction={way}{order}")

    def is_finite(self) -> None:
        x = self.array(self.pick(FLOATS))
        self.root("pred", x.dims, f"is-finite({x.name})")

    def stochastic_convert(self) -> None:
        x = self.array("f32")
        bits = self.given("u32", x.dims)
        target = self.pick(("s8", "s16", "s32"))
        self.root(target, x.dims, f"stochastic-convert({x.name}, {bits.name})")

    def select(self) -> None:
        x = self.array(self.pick(ALL))
        chosen = self.given("pred", x.dims if self.chance(0.7) else ())
        y = self.given(x.dtype, x.dims)
        self.root(x.dtype, x.dims, f"select({chosen.name}, {x.name}, {y.name})")

    def clamp(self) -> None:
        x = self.array(self.pick(ALL))
        dims = x.dims if self.chance(0.5) else ()
        low, high = self.given(x.dtype, dims), self.given(x.dtype, dims)
        self.root(x.dtype, x.dims, f"clamp({low.name}, {x.name}, {high.name})")

    def convert(self) -> None:
        x = self.array(self.pick((*INTEGERS, *FLOATS, "pred")))
        self.root(self.pick(ALL), x.dims, f"convert({x.name})")

    def bitcast_convert(self) -> None:
        widths = {"u8": 8, "s8": 8, "f8e5m2": 8, "bf16": 16, "f16": 16, "u16": 16, "f32": 32}
        widths |= {"s32": 32, "u32": 32, "f64": 64, "s64": 64, "u64": 64, "s4": 4, "u4": 4}
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
        x = self.array(self.pick(ALL), least=1)
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
        self.root(
            self.pick((*INTEGERS, *FLOATS, *COMPLEX)), dims, f"iota(), iota_dimension={along}"
        )

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

    def all_reduce(self) -> None:
        dtype = self.pick(("s32", "f32", "u8", "pred"))
        x = self.given(dtype, self.sizes())
        region = self.region(dtype, "or" if dtype == "pred" else "add")
        call = f"all-reduce({x.name}), replica_groups={{}}, to_apply={region}"
        self.root(dtype, x.dims, call)

    def all_gather(self) -> None:
        x = self.given("s32", tuple(n + 1 for n in self.sizes(least=1)))
        along = self.rnd.randrange(len(x.dims))
        call = f"all-gather({x.name}), replica_groups={{{{0}}}}, dimensions={{{along}}}"
        self.root(x.dtype, x.dims, call)

    def reduce_scatter(self) -> None:
        x = self.given("s32", tuple(n + 1 for n in self.sizes(least=1)))
        along, region = self.rnd.randrange(len(x.dims)), self.region("s32", "add")
        tail = f"replica_groups={{{{0}}}}, dimensions={{{along}}}, to_apply={region}"
        self.root("s32", x.dims, f"reduce-scatter({x.name}), {tail}")

    def all_to_all(self) -> None:
        x = self.given("f32", tuple(n + 1 for n in self.sizes(least=1)))
        along = self.rnd.randrange(len(x.dims))
        call = f"all-to-all({x.name}), replica_groups={{{{0}}}}, dimensions={{{along}}}"
        self.root("f32", x.dims, call)

    def collective_permute(self) -> None:
        x = self.array(self.pick(("s32", "f32", "u8")))
        self.root(x.dtype, x.dims, f"collective-permute({x.name}), source_target_pairs={{{{0,0}}}}")


KINDS = tuple(
    name for kinds in (_Operation, Folds, Indexing) for name in vars(kinds) if name[0] != "_"
)
