"""Random reductions, windows, sorts, products and normalizations."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import ml_dtypes
from random_elements import COMPLEX, INTEGERS, NARROW, WIDE
from random_shapes import Operand, Shaping

from hlo2graph.hlo import DTYPES

_FOLDED = {
    "pred": ("and", "or"),
    **dict.fromkeys(INTEGERS, ("add", "multiply", "maximum", "minimum", "and", "xor")),
    **dict.fromkeys(WIDE, ("add", "maximum", "minimum")),
    **dict.fromkeys(NARROW, ("maximum", "minimum")),
    **dict.fromkeys(COMPLEX, ("add",)),
}
_SORTED = [d for d in INTEGERS if DTYPES[d].bits != 2]  # which XLA leaves as they are
_LARGEST = """\
  a = {0}[] parameter(0)
  i = s32[] parameter(1)
  b = {0}[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tied = pred[] and(same, first)
  keep = pred[] or(more, tied)
  value = {0}[] select(keep, a, b)
  at = s32[] select(keep, i, j)
  ROOT both = ({0}[], s32[]) tuple(value, at)
"""


class _Side(NamedTuple):
    """A dimension of a window: its text's parts, and how many places it has."""

    size: int
    stride: int
    low: int
    high: int
    base: int
    spread: int
    places: int


class Folds(Shaping):
    """Each public method writes one operation."""

    def reduce(self) -> None:
        x = self.array(self.pick(tuple(_FOLDED)))
        opcode = self.pick(_FOLDED[x.dtype])
        start = self._unit(x.dtype, opcode)
        dims = sorted(self.rnd.sample(range(len(x.dims)), self.rnd.randint(0, len(x.dims))))
        kept = tuple(n for d, n in enumerate(x.dims) if d not in dims)
        region = self.region(x.dtype, opcode)
        call = f"reduce({x.name}, {start}), dimensions={self.braced(dims)}, to_apply={region}"
        self.root(x.dtype, kept, call)

    def reduce_two(self) -> None:
        x = self.array(self.pick(("f32", "s32", "bf16")), least=1)
        i = self.given("s32", x.dims)
        starts = self._unit(x.dtype, "maximum"), self._unit("s32", "minimum")
        along = self.rnd.randrange(len(x.dims))
        kept = (*x.dims[:along], *x.dims[along + 1 :])
        region = self.computation(f"largest_{x.dtype}", _LARGEST.format(x.dtype))
        names = ", ".join((x.name, i.name, *starts))
        call = f"reduce({names}), dimensions={{{along}}}, to_apply={region}"
        self.several([(x.dtype, kept), ("s32", kept)], call)

    def _unit(self, dtype: str, opcode: str) -> str:
        """Write what changes nothing: XLA folds a start in any number of times, or never."""
        low, high = "-inf", "inf"
        if dtype.endswith(("fn", "fnu", "fnuz")):  # without an infinity
            limits = ml_dtypes.finfo(DTYPES[dtype].numpy)
            low, high = str(limits.min), str(limits.max)
        if dtype in INTEGERS:
            low, high = map(str, DTYPES[dtype].limits)
        ones = {"s": "-1", "u": high, "p": "true"}
        unit = {"maximum": low, "minimum": high, "multiply": "1"}.get(opcode, "0")
        if opcode == "and":
            unit = ones[dtype[0]]
        if unit == "0":
            unit = {"c64": "(0, 0)", "c128": "(0, 0)", "pred": "false"}.get(dtype, unit)
        return self._written(dtype, (), f"constant({unit})")

    def _sides(self, dims: tuple[int, ...], *, dilated: bool = True) -> list[_Side]:
        found = []
        for n in dims:
            size, stride = self.rnd.randint(1, 3), self.rnd.randint(1, 3)
            low, high = self.rnd.randint(0, 2), self.rnd.randint(0, 2)
            base, spread = (self.pick((1, 1, 2)) if dilated else 1 for _ in range(2))
            length = (n - 1) * base + 1 + low + high if n else low + high
            span = (size - 1) * spread + 1
            places = (length - span) // stride + 1 if length >= span else 0
            found.append(_Side(size, stride, low, high, base, spread, places))
        return found

    def _window(self, sides: list[_Side], reversal: list[int] | None = None) -> str:
        if not sides:
            return "window={}"
        parts = {
            "size": [s.size for s in sides],
            "stride": [s.stride for s in sides],
            "pad": [f"{s.low}_{s.high}" for s in sides],
            "lhs_dilate": [s.base for s in sides],
            "rhs_dilate": [s.spread for s in sides],
        }
        if reversal:
            parts["rhs_reversal"] = reversal
        written = (f"{name}={'x'.join(map(str, values))}" for name, values in parts.items())
        return f"window={{{' '.join(written)}}}"

    def reduce_window(self) -> None:
        x = self.array(self.pick(tuple(d for d in _FOLDED if d not in COMPLEX)), least=1)
        opcode = self.pick(_FOLDED[x.dtype])
        start = self.given(x.dtype, ())
        sides = self._sides(x.dims)
        region = self.region(x.dtype, opcode)
        call = f"reduce-window({x.name}, {start.name}), {self._window(sides)}, to_apply={region}"
        self.root(x.dtype, tuple(s.places for s in sides), call)

    def select_and_scatter(self) -> None:
        x = self.array(self.pick(("f32", "f64")), least=1)
        distinct = self._distinct(x)
        sides = self._sides(x.dims, dilated=False)
        source = self.given(x.dtype, tuple(s.places for s in sides))
        start = self.given(x.dtype, ())
        select = self.region(x.dtype, "compare", f", direction={self.pick(('GE', 'LE'))}")
        call = (
            f"select-and-scatter({distinct}, {source.name}, {start.name}), {self._window(sides)}, "
            f"select={select}, scatter={self.region(x.dtype, 'add')}"
        )
        self.root(x.dtype, x.dims, call)

    def _distinct(self, x: Operand) -> str:
        """Write values of which no two are equal: which of equals is selected is not pinned."""
        count = prod(x.dims)
        thousand = self._written(x.dtype, (), "constant(1000)")
        wide = self._written(x.dtype, x.dims, f"broadcast({thousand}), dimensions={{}}")
        far = self._written(x.dtype, x.dims, f"multiply({x.name}, {wide})")
        flat = self._written(x.dtype, (count,), "iota(), iota_dimension=0")
        numbers = self._written(x.dtype, x.dims, f"reshape({flat})")
        return self._written(x.dtype, x.dims, f"add({far}, {numbers})")

    def map(self) -> None:
        x = self.array(self.pick(("f32", "s32", "u8", "bf16")))
        y = self.given(x.dtype, x.dims)
        region = self.region(x.dtype, self.pick(("add", "multiply", "maximum", "subtract")))
        dims = self.braced(range(len(x.dims)))
        self.root(x.dtype, x.dims, f"map({x.name}, {y.name}), dimensions={dims}, to_apply={region}")

    def sort(self) -> None:
        x = self.array(self.pick((*_SORTED, *WIDE)), least=1)
        others = [
            self.given(self.pick(("s32", "f32", "u8", "pred")), x.dims)
            for _ in range(self.rnd.randint(0, 2))
        ]
        arrays = [x, *others]
        dtypes = [v.dtype for v in arrays for _ in range(2)]
        given = "".join(f"  q{k} = {d}[] parameter({k})\n" for k, d in enumerate(dtypes))
        ways = self.pick(("LT", "GT"))
        order = f"  ROOT r = pred[] compare(q0, q1), direction={ways}\n"
        region = self.computation("before", given + order)
        along = self.rnd.randrange(len(x.dims))
        call = (
            f"sort({', '.join(v.name for v in arrays)}), dimensions={{{along}}}, is_stable=true, "
            f"to_apply={region}"
        )
        if others:
            self.several([(v.dtype, v.dims) for v in arrays], call)
        else:
            self.root(x.dtype, x.dims, call)

    def topk(self) -> None:
        x = self.array(self.pick(("f32", "s32", "bf16")), least=1)
        x = self.given(x.dtype, (*x.dims[:1], 6))
        count = self.rnd.randint(1, 6)
        dims = (*x.dims[:-1], count)
        largest = self.pick(("true", "false"))
        self.several(
            [(x.dtype, dims), ("s32", dims)], f"topk({x.name}), k={count}, largest={largest}"
        )

    def dot(self) -> None:
        left, right, result = self.pick(
            (
                *((d, d, d) for d in (*WIDE, "s8", "s32", "u8", "u64", "s4", *COMPLEX, "pred")),
                *((d, d, "f32") for d in NARROW),
                *(("bf16", "bf16", "f32"), ("s8", "s8", "s32"), ("f16", "f16", "f32")),
                *(("f32", "f32", "s32"), ("u8", "s8", "s32"), ("bf16", "f32", "f32")),
            )
        )
        batch, rows, columns, steps = (self.sizes(0, most) for most in (2, 2, 2, 2))
        x = self._mixed(left, (batch, rows, steps))
        y = self._mixed(right, (batch, columns, steps))
        names = ("lhs_batch_dims", "lhs_contracting_dims", "rhs_batch_dims", "rhs_contracting_dims")
        dims = (x[1], x[2], y[1], y[2])
        written = [f"{n}={self.braced(d)}" for n, d in zip(names, dims, strict=True) if d]
        call = ", ".join([f"dot({x[0].name}, {y[0].name})", *written])
        free = [tuple(v[0].dims[d] for d in v[3]) for v in (x, y)]
        self.root(result, (*batch, *free[0], *free[1]), call)

    def _mixed(
        self, dtype: str, parts: tuple[tuple[int, ...], ...]
    ) -> tuple[Operand, list[int], list[int], list[int]]:
        """Write an operand whose dimensions lie in any order; return its batch, steps and free."""
        batch, free, steps = parts
        tags = [*(("b", k) for k in range(len(batch))), *(("f", k) for k in range(len(free)))]
        tags += [("s", k) for k in range(len(steps))]
        self.rnd.shuffle(tags)
        sizes = {"b": batch, "f": free, "s": steps}
        operand = self.given(dtype, tuple(sizes[tag][k] for tag, k in tags))
        places = {
            letter: [tags.index((letter, k)) for k in range(len(sizes[letter]))] for letter in "bs"
        }
        loose = [d for d, (tag, _) in enumerate(tags) if tag == "f"]
        return operand, places["b"], places["s"], loose

    def convolution(self) -> None:
        dtype = self.pick(("f32", "f32", "f64", "bf16", "s32"))
        spatial = tuple(self.rnd.randint(1, 6) for _ in range(self.rnd.randint(0, 3)))
        sides = self._sides(spatial)
        features, batches = self.pick(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2)))
        inputs, outputs, batch = (self.rnd.randint(1, 3) for _ in range(3))
        outputs *= features * batches
        batch *= batches
        digits = [str(k) for k in range(len(spatial))]
        sizes = dict(zip(digits, spatial, strict=True))
        kernel = {d: s.size for d, s in zip(digits, sides, strict=True)}
        places = {d: s.places for d, s in zip(digits, sides, strict=True)}
        labels = [
            "".join(self.rnd.sample([*letters, *digits], len(digits) + 2))
            for letters in ("bf", "io", "bf")
        ]
        sizes |= {"b": batch, "f": inputs * features}
        kernel |= {"i": inputs, "o": outputs}
        places |= {"b": batch // batches, "f": outputs}
        x = self.given(dtype, tuple(sizes[c] for c in labels[0]))
        y = self.given(dtype, tuple(kernel[c] for c in labels[1]))
        reversal = [int(self.chance(0.3)) for _ in spatial]
        groups = f"feature_group_count={features}, batch_group_count={batches}"
        window = f", {self._window(sides, reversal)}" if spatial else ""
        call = (
            f"convolution({x.name}, {y.name}){window}, "
            f"dim_labels={labels[0]}_{labels[1]}->{labels[2]}, {groups}"
        )
        self.root(dtype, tuple(places[c] for c in labels[2]), call)

    def batch_norm(self) -> None:
        x = self.given(self.pick(("f32", "f64")), tuple(self.rnd.randint(1, 4) for _ in range(3)))
        at = self.rnd.randrange(3)
        feature = (x.dims[at],)
        scale, offset = self.given(x.dtype, feature), self.given(x.dtype, feature)
        tail = f"epsilon=0.5, feature_index={at}"
        if self.chance(0.3):
            mean = self.given(x.dtype, feature).name
            spread = self._written(x.dtype, feature, f"multiply({offset.name}, {offset.name})")
            names = ", ".join((x.name, scale.name, offset.name, mean, spread))
            self.root(x.dtype, x.dims, f"batch-norm-inference({names}), {tail}")
            return
        if self.chance(0.5):
            call = f"batch-norm-training({x.name}, {scale.name}, {offset.name}), {tail}"
            self.several([(x.dtype, x.dims), (x.dtype, feature), (x.dtype, feature)], call)
            return
        mean, like = self.given(x.dtype, feature), self.given(x.dtype, x.dims)
        spread = self._written(x.dtype, feature, f"multiply({offset.name}, {offset.name})")
        names = ", ".join((x.name, scale.name, mean.name, spread, like.name))
        results = [(x.dtype, x.dims), (x.dtype, feature), (x.dtype, feature)]
        self.several(results, f"batch-norm-grad({names}), {tail}")

    def _written(self, dtype: str, dims: tuple[int, ...], call: str) -> str:
        name = f"made{len(self.lines)}"
        self.lines.append(f"{name} = {self.shape(dtype, dims)} {call}")
        return name
