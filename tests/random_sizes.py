"""Random programs over bounded arrays, each written twice: bounded, and with its true sizes.

What the first computes within its sizes is what the second computes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np

REGIONS = """add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] maximum(a, b) }
less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=LT }
"""
CONSTANTS = """ zero = f32[] constant(0)
 one = f32[] constant(1)
 low = f32[] constant(-inf)
"""
BOUNDED, TRUE = 0, 1
LARGEST = 40  # elements along a dimension


@dataclass(frozen=True)
class Dim:
    """A dimension: its bound, its size, and whether only a run knows that."""

    bound: int
    size: int
    open: bool = True

    def text(self, way: int) -> str:
        if way == TRUE:
            return str(self.size)
        return f"<={self.bound}" if self.open else str(self.bound)


Dims = tuple[Dim, ...]
Call = Callable[[int], str]  # BOUNDED or TRUE -> the text of an operation


def shape(dims: Dims, way: int, dtype: str = "f32") -> str:
    return f"{dtype}[{','.join(d.text(way) for d in dims)}]"


def listed(numbers) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


@dataclass
class Program:
    """Two texts that grow together."""

    seed: int
    lines: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    regions: list[str] = field(default_factory=lambda: [REGIONS, REGIONS])
    arrays: list[tuple[str, Dims]] = field(default_factory=list)
    arguments: tuple[list[np.ndarray], list[np.ndarray]] = field(default_factory=lambda: ([], []))

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.count = 0
        self._open_parameters()
        steps = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("step_")]
        for _ in range(10):
            self.draw.choice(steps)(*self.draw.choice(self.arrays))

    def _open_parameters(self) -> None:
        bounds = [self.draw.randint(1, 6) for _ in range(2)]
        sizes = [
            Dim(bound, self.draw.choice((bound, self.draw.randint(0, bound)))) for bound in bounds
        ]
        for number in range(2):
            dims = tuple(
                self.draw.choice((*sizes, Dim(fixed, fixed, open=False)))
                for fixed in (self.draw.randint(1, 4) for _ in range(self.draw.randint(1, 3)))
            )
            drawn = np.random.default_rng([self.seed, number]).integers(
                -4, 5, [d.bound for d in dims]
            )
            self._parameter(f"p{number}", dims, drawn.astype(np.float32))
        for number, dim in enumerate(sizes):
            for way in (BOUNDED, TRUE):
                self.lines[way].insert(0, f" n{number} = s32[] parameter({2 + number})")
                self.arguments[way].append(np.asarray(dim.size, np.int32))
        self._set_sizes(sizes)

    def _parameter(self, name: str, dims: Dims, value: np.ndarray) -> None:
        whole = tuple(Dim(d.bound, d.size, open=False) for d in dims)
        for way in (BOUNDED, TRUE):
            self.lines[way].append(f" {name} = {shape(whole, way)} parameter({name[1:]})")
        self.arguments[BOUNDED].append(value)
        self.arguments[TRUE].append(value[tuple(slice(d.size) for d in dims)])
        self.arrays.append((name, dims))

    def _set_sizes(self, sizes: list[Dim]) -> None:
        given, self.arrays = self.arrays, []
        for name, dims in given:
            held = [Dim(d.bound, d.size, open=False) for d in dims]
            before = name
            for at, dim in enumerate(dims):
                if dim.open:
                    held[at] = dim
                    text = shape(tuple(held), BOUNDED)
                    call = f"set-dimension-size({before}, n{sizes.index(dim)})"
                    before = f"{name}.{at}"
                    self.lines[BOUNDED].append(f" {before} = {text} {call}, dimensions={{{at}}}")
            self.lines[TRUE].append(f" {name}.s = {shape(dims, TRUE)} reshape({name})")
            self.lines[BOUNDED].append(f" {name}.s = {shape(dims, BOUNDED)} reshape({before})")
            self.arrays.append((f"{name}.s", dims))

    def emit(self, dims: Dims, call: Call, dtype: str = "f32") -> str:
        if prod(d.bound for d in dims) > 600 or len(dims) > 4:
            return ""
        name = f"v{self.count}"
        self.count += 1
        for way in (BOUNDED, TRUE):
            self.lines[way].append(f" {name} = {shape(dims, way, dtype)} {call(way)}")
        if dtype == "f32":
            self.arrays.append((name, dims))
        return name

    def alike(self, dims: Dims) -> str:
        return self.draw.choice([name for name, held in self.arrays if held == dims])

    def step_subtract(self, name: str, dims: Dims) -> None:
        other = self.alike(dims)
        self.emit(dims, lambda _: f"subtract({name}, {other})")

    def step_select(self, name: str, dims: Dims) -> None:
        other = self.alike(dims)
        flags = self.emit(dims, lambda _: f"compare({name}, {other}), direction=LT", "pred")
        self.emit(dims, lambda _: f"select({flags}, {name}, {other})")

    def step_broadcast(self, name: str, dims: Dims) -> None:
        at, fixed = self.draw.randint(0, len(dims)), self.draw.randint(1, 3)
        grown = (*dims[:at], Dim(fixed, fixed, open=False), *dims[at:])
        kept = listed(d for d in range(len(grown)) if d != at)
        self.emit(grown, lambda _: f"broadcast({name}), dimensions={kept}")

    def step_transpose(self, name: str, dims: Dims) -> None:
        order = self.draw.sample(range(len(dims)), len(dims))
        turned = tuple(dims[d] for d in order)
        self.emit(turned, lambda _: f"transpose({name}), dimensions={listed(order)}")

    def step_reverse(self, name: str, dims: Dims) -> None:
        turned = listed(self.draw.sample(range(len(dims)), self.draw.randint(0, len(dims))))
        self.emit(dims, lambda _: f"reverse({name}), dimensions={turned}")

    def step_reduce(self, name: str, dims: Dims) -> None:
        folded = sorted(self.draw.sample(range(len(dims)), self.draw.randint(0, len(dims))))
        region, init = self.draw.choice((("add", "zero"), ("larger", "low")))
        kept = tuple(d for k, d in enumerate(dims) if k not in folded)
        attrs = f"dimensions={listed(folded)}, to_apply={region}"
        self.emit(kept, lambda _: f"reduce({name}, {init}), {attrs}")

    def step_concatenate(self, name: str, dims: Dims) -> None:
        if not dims:
            return
        at = self.draw.randrange(len(dims))

        def others(held: Dims) -> Dims:
            return (*held[:at], *held[at + 1 :])

        fitting = [
            a for a in self.arrays if len(a[1]) == len(dims) and others(a[1]) == others(dims)
        ]
        other, held = self.draw.choice(fitting)
        one, two = dims[at], held[at]
        long = Dim(one.bound + two.bound, one.size + two.size, one.open or two.open)
        grown = (*dims[:at], long, *dims[at + 1 :])
        if long.bound <= LARGEST:
            self.emit(grown, lambda _: f"concatenate({name}, {other}), dimensions={{{at}}}")

    def step_pad(self, name: str, dims: Dims) -> None:
        padding, grown = [], []
        for dim in dims:
            low, high, inside = (self.draw.choice((0, 0, 1, 2)) for _ in range(3))
            padding.append(f"{low}_{high}_{inside}")
            bound, size = (n + low + high + max(n - 1, 0) * inside for n in (dim.bound, dim.size))
            grown.append(Dim(bound, size, dim.open))
        if dims and all(d.bound <= LARGEST for d in grown):
            text = "x".join(padding)
            self.emit(tuple(grown), lambda _: f"pad({name}, one), padding={text}")

    def step_sort(self, name: str, dims: Dims) -> None:
        if dims:
            at = self.draw.randrange(len(dims))
            attrs = f"dimensions={{{at}}}, is_stable=true, to_apply=less"
            self.emit(dims, lambda _: f"sort({name}), {attrs}")

    def step_windows(self, name: str, dims: Dims) -> None:
        if not dims:
            return
        at, size = self.draw.randrange(len(dims)), self.draw.randint(1, 3)
        stride, low, high = (self.draw.randint(1, 2), *(self.draw.randint(0, 1) for _ in range(2)))

        def text(chosen: str, other: str) -> str:
            return "x".join(chosen if d == at else other for d in range(len(dims)))

        def positions(count: int) -> int:
            return max(count + low + high - size + stride, 0) // stride

        window = f"size={text(str(size), '1')} stride={text(str(stride), '1')}"
        window += f" pad={text(f'{low}_{high}', '0_0')}"
        seen = Dim(positions(dims[at].bound), positions(dims[at].size), dims[at].open)
        kept = (*dims[:at], seen, *dims[at + 1 :])
        if seen.bound:
            attrs = f"window={{{window}}}, to_apply=add"
            self.emit(kept, lambda _: f"reduce-window({name}, zero), {attrs}")

    def step_merge(self, name: str, dims: Dims) -> None:
        if len(dims) > 1:
            at = self.draw.randrange(len(dims) - 1)
            one, two = dims[at : at + 2]
            both = Dim(one.bound * two.bound, one.size * two.size, one.open or two.open)
            self.emit((*dims[:at], both, *dims[at + 2 :]), lambda _: f"reshape({name})")

    def step_split(self, name: str, dims: Dims) -> None:
        if not dims:
            return
        at = self.draw.randrange(len(dims))
        dim = dims[at]
        fixed = self.draw.choice([n for n in (1, 2, 3) if not dim.bound % n and not dim.size % n])
        pair = [Dim(dim.bound // fixed, dim.size // fixed, dim.open), Dim(fixed, fixed, open=False)]
        self.draw.shuffle(pair)
        self.emit((*dims[:at], *pair, *dims[at + 1 :]), lambda _: f"reshape({name})")

    def step_dot(self, name: str, dims: Dims) -> None:
        pairs = [
            (other, held, a, b)
            for other, held in self.arrays
            for a, one in enumerate(dims)
            for b, two in enumerate(held)
            if (one.bound, one.size) == (two.bound, two.size)
        ]
        if not pairs:
            return
        other, held, a, b = self.draw.choice(pairs)
        kept = (*dims[:a], *dims[a + 1 :], *held[:b], *held[b + 1 :])
        attrs = f"lhs_contracting_dims={{{a}}}, rhs_contracting_dims={{{b}}}"
        self.emit(kept, lambda _: f"dot({name}, {other}), {attrs}")

    def step_branch(self, name: str, dims: Dims) -> None:
        at = self.count
        for way in (BOUNDED, TRUE):
            text = shape(dims, way)
            self.regions[way] += (
                f"yes{at} {{ x = {text} parameter(0)\n ROOT y = {text} negate(x) }}\n"
                f"no{at} {{ x = {text} parameter(0)\n ROOT y = {text} add(x, x) }}\n"
            )
        flag = self.emit((), lambda _: "compare(n0, n1), direction=LT", "pred")
        attrs = f"true_computation=yes{at}, false_computation=no{at}"
        self.emit(dims, lambda _: f"conditional({flag}, {name}, {name}), {attrs}")

    def text(self, way: int) -> str:
        """Return one of the two texts; the last arrays are its results."""
        shapes = ", ".join(shape(dims, way) for _, dims in self.results)
        names = ", ".join(name for name, _ in self.results)
        body = "\n".join(self.lines[way])
        root = f" ROOT all = ({shapes}) tuple({names})"
        return f"HloModule m\n{self.regions[way]}ENTRY e {{\n{CONSTANTS}{body}\n{root}\n}}"

    @property
    def results(self) -> list[tuple[str, Dims]]:
        return self.arrays[-6:]
