"""Random chains of operations that move elements, and of arithmetic with constants.

`random_chain(rnd)` returns a module's text. Dimensions of 0 and 1, strides, negative padding,
broadcasts and known indices are frequent, so that rules about them meet each other.
"""

from __future__ import annotations

import random
from typing import NamedTuple

DTYPES = ("s32", "u8", "pred", "f32")
SIZES = (0, 1, 1, 2, 3, 4)


class Array(NamedTuple):
    """An instruction that may be an operand."""

    name: str
    dtype: str
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


def random_chain(rnd: random.Random, most: int = 24) -> str:
    """Return the text of a module of at most `most` instructions, but for constants."""
    return _Chain(rnd).text(rnd.randint(1, most))


def _braced(numbers: object) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


class _Chain:
    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.lines: list[str] = []
        self.arrays: list[Array] = []

    def text(self, count: int) -> str:
        for k in range(3):
            dims = tuple(self.rnd.choice(SIZES[1:]) for _ in range(self.rnd.randint(0, 3)))
            self.add(self.rnd.choice(DTYPES), dims, f"parameter({k})")
        kinds = [name for name in dir(self) if name.startswith("make_")]
        for _ in range(count):
            getattr(self, self.rnd.choice(kinds))(self.rnd.choice(self.arrays[-4:]))
        roots = [self.arrays[-1], *self.rnd.sample(self.arrays, min(2, len(self.arrays)))]
        shapes, names = ", ".join(map(str, roots)), ", ".join(r.name for r in roots)
        self.lines.append(f"ROOT root = ({shapes}) tuple({names})")
        body = "\n  ".join(self.lines)
        return f"HloModule m\n\n{_regions()}\nENTRY main {{\n  {body}\n}}\n"

    def add(self, dtype: str, dims: tuple[int, ...], call: str, *, offered: bool = True) -> Array:
        made = Array(f"v{len(self.lines)}", dtype, dims)
        self.lines.append(f"{made.name} = {made} {call}")
        if offered:
            self.arrays.append(made)
        return made

    def scalar(self, dtype: str, number: int) -> Array:
        text = ("false", "true")[number % 2] if dtype == "pred" else str(number)
        return self.add(dtype, (), f"constant({text})", offered=False)

    def make_reshape(self, x: Array) -> None:
        dims = list(x.dims)
        if self.rnd.random() < 0.5:
            dims.insert(self.rnd.randint(0, len(dims)), 1)
        elif 1 in dims:
            dims.remove(1)
        elif len(dims) > 1:
            at = self.rnd.randrange(len(dims) - 1)
            dims[at : at + 2] = [dims[at] * dims[at + 1]]
        if len(dims) < 6:
            self.add(x.dtype, tuple(dims), f"reshape({x.name})")

    def make_transpose(self, x: Array) -> None:
        order = self.rnd.sample(range(len(x.dims)), len(x.dims))
        dims = tuple(x.dims[d] for d in order)
        self.add(x.dtype, dims, f"transpose({x.name}), dimensions={_braced(order)}")

    def make_broadcast(self, x: Array) -> None:
        rank = min(5, len(x.dims) + self.rnd.randint(0, 2))
        if rank < len(x.dims):
            return
        to = sorted(self.rnd.sample(range(rank), len(x.dims)))
        if self.rnd.random() < 0.3:
            self.rnd.shuffle(to)
        dims = [self.rnd.choice(SIZES) for _ in range(rank)]
        for d, size in zip(to, x.dims, strict=True):
            dims[d] = size
        self.add(x.dtype, tuple(dims), f"broadcast({x.name}), dimensions={_braced(to)}")

    def make_reverse(self, x: Array) -> None:
        dims = [d for d in range(len(x.dims)) if self.rnd.random() < 0.6]
        self.add(x.dtype, x.dims, f"reverse({x.name}), dimensions={_braced(dims)}")

    def make_slice(self, x: Array) -> None:
        ranges = []
        for size in x.dims:
            start = self.rnd.randint(0, size)
            limit = self.rnd.randint(start, size)
            whole = self.rnd.random() < 0.5
            ranges.append((0, size, 1) if whole else (start, limit, self.rnd.choice((1, 1, 2))))
        dims = tuple(-(-(limit - start) // step) for start, limit, step in ranges)
        written = ", ".join(f"[{a}:{b}:{c}]" for a, b, c in ranges)
        self.add(x.dtype, dims, f"slice({x.name}), slice={{{written}}}")

    def make_pad(self, x: Array) -> None:
        pads = [
            (self.rnd.randint(-1, 1), self.rnd.randint(-1, 1), self.rnd.choice((0, 0, 0, 1)))
            for _ in x.dims
        ]
        dims = tuple(
            low + high + size + max(0, size - 1) * inner
            for (low, high, inner), size in zip(pads, x.dims, strict=True)
        )
        if x.dims and min(dims) >= 0:
            value = self.scalar(x.dtype, 1)
            written = "x".join("_".join(map(str, pad)) for pad in pads)
            self.add(x.dtype, dims, f"pad({x.name}, {value.name}), padding={written}")

    def make_concatenate(self, x: Array) -> None:
        if not x.dims:
            return
        along = self.rnd.randrange(len(x.dims))
        others = [
            y
            for y in self.arrays
            if y.dtype == x.dtype
            and len(y.dims) == len(x.dims)
            and all(
                m == n for d, (m, n) in enumerate(zip(x.dims, y.dims, strict=True)) if d != along
            )
        ]
        parts = [self.rnd.choice(others) for _ in range(self.rnd.randint(1, 3))]
        dims = list(x.dims)
        dims[along] = sum(p.dims[along] for p in parts)
        names = ", ".join(p.name for p in parts)
        self.add(x.dtype, tuple(dims), f"concatenate({names}), dimensions={{{along}}}")

    def make_halves(self, x: Array) -> None:
        """Cut an array in two, and put it together again."""
        if not x.dims:
            return
        along = self.rnd.randrange(len(x.dims))
        at = self.rnd.randint(0, x.dims[along])
        parts = []
        for start, limit in ((0, at), (at, x.dims[along])):
            ends = [(start, limit) if d == along else (0, n) for d, n in enumerate(x.dims)]
            written = ", ".join(f"[{a}:{b}]" for a, b in ends)
            dims = tuple(b - a for a, b in ends)
            parts.append(self.add(x.dtype, dims, f"slice({x.name}), slice={{{written}}}"))
        names = ", ".join(p.name for p in parts)
        self.add(x.dtype, x.dims, f"concatenate({names}), dimensions={{{along}}}")

    def make_dynamic_slice(self, x: Array) -> None:
        sizes = tuple(self.rnd.randint(0, n) for n in x.dims)
        self.add(
            x.dtype,
            sizes,
            f"dynamic-slice({', '.join([x.name, *self._starts(x)])}), "
            f"dynamic_slice_sizes={_braced(sizes)}",
        )

    def make_dynamic_update_slice(self, x: Array) -> None:
        fitting = [
            y
            for y in self.arrays
            if y.dtype == x.dtype
            and len(y.dims) == len(x.dims)
            and all(m <= n for m, n in zip(y.dims, x.dims, strict=True))
        ]
        update = self.rnd.choice(fitting)
        operands = ", ".join([x.name, update.name, *self._starts(x)])
        self.add(x.dtype, x.dims, f"dynamic-update-slice({operands})")

    def _starts(self, x: Array) -> list[str]:
        known = [y for y in self.arrays if y.dtype == "s32" and not y.dims]
        return [
            self.rnd.choice(known).name
            if known and self.rnd.random() < 0.3
            else self.scalar("s32", self.rnd.randint(-1, 4)).name
            for _ in x.dims
        ]

    def make_gather(self, x: Array) -> None:
        """Take a row: at one index, or at two."""
        if not x.dims or 0 in x.dims:
            return
        count = self.rnd.choice((1, 1, 2))
        at = self.scalar("s32", self.rnd.randint(-1, 4))
        index = self.add("s32", (count, 1), f"broadcast({at.name}), dimensions={{}}", offered=False)
        rest = x.dims[1:]
        self.add(
            x.dtype,
            (count, *rest),
            f"gather({x.name}, {index.name}), offset_dims={_braced(range(1, len(x.dims)))}, "
            f"collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, "
            f"slice_sizes={_braced((1, *rest))}",
        )

    def make_scatter(self, x: Array) -> None:
        """Put a window at a known place, inside or not."""
        if not x.dims or 0 in x.dims:
            return
        window = tuple(self.rnd.randint(1, n) for n in x.dims)
        at = self.scalar("s32", self.rnd.randint(-1, 2))
        index = self.add(
            "s32", (len(x.dims),), f"broadcast({at.name}), dimensions={{}}", offered=False
        )
        one = self.scalar(x.dtype, 1)
        update = self.add(x.dtype, window, f"broadcast({one.name}), dimensions={{}}", offered=False)
        dims = _braced(range(len(x.dims)))
        self.add(
            x.dtype,
            x.dims,
            f"scatter({x.name}, {index.name}, {update.name}), update_window_dims={dims}, "
            f"inserted_window_dims={{}}, scatter_dims_to_operand_dims={dims}, "
            f"index_vector_dim=0, to_apply=last_{x.dtype}",
        )

    def make_reduce(self, x: Array) -> None:
        dims = [d for d, n in enumerate(x.dims) if n == 1 or self.rnd.random() < 0.2]
        rest = tuple(n for d, n in enumerate(x.dims) if d not in dims)
        start = self.scalar(x.dtype, self.rnd.randint(0, 1))
        self.add(
            x.dtype,
            rest,
            f"reduce({x.name}, {start.name}), dimensions={_braced(dims)}, to_apply=max_{x.dtype}",
        )

    def make_iota(self, x: Array) -> None:
        if x.dims and x.dtype != "pred":
            along = self.rnd.randrange(len(x.dims))
            self.add(x.dtype, x.dims, f"iota(), iota_dimension={along}")

    def make_table(self, x: Array) -> None:
        """Write an array of known elements, all equal now and then."""
        size = self.rnd.randint(1, 4)
        same = self.rnd.random() < 0.3
        numbers = [1 if same else self.rnd.randint(0, 5) for _ in range(size)]
        texts = [("false", "true")[n % 2] if x.dtype == "pred" else str(n) for n in numbers]
        self.add(x.dtype, (size,), f"constant({{{', '.join(texts)}}})")

    def make_arithmetic(self, x: Array) -> None:
        number = self.scalar(x.dtype, self.rnd.randint(0, 2))
        full = self.add(
            x.dtype, x.dims, f"broadcast({number.name}), dimensions={{}}", offered=False
        )
        opcodes = {
            "pred": ("and", "or", "xor"),
            "f32": ("add", "subtract", "multiply", "maximum", "minimum"),
        }
        ours = opcodes.get(x.dtype, ("add", "and", "divide", "multiply", "or", "remainder",
                                     "shift-left", "subtract", "xor"))  # fmt: skip
        pair = [x.name, full.name]
        self.rnd.shuffle(pair)
        self.add(x.dtype, x.dims, f"{self.rnd.choice(ours)}({', '.join(pair)})")

    def make_choice(self, x: Array) -> None:
        number = self.scalar(x.dtype, self.rnd.randint(0, 2))
        full = self.add(
            x.dtype, x.dims, f"broadcast({number.name}), dimensions={{}}", offered=False
        )
        way = self.rnd.choice(("EQ", "NE", "LT", "LE", "GT", "GE"))
        chosen = self.add("pred", x.dims, f"compare({x.name}, {full.name}), direction={way}")
        self.add(x.dtype, x.dims, f"select({chosen.name}, {full.name}, {x.name})")

    def make_convert(self, x: Array) -> None:
        self.add(self.rnd.choice(DTYPES[:2]), x.dims, f"convert({x.name})")


def _regions() -> str:
    made = []
    for dtype in DTYPES:
        first, second = f"a = {dtype}[] parameter(0)", f"b = {dtype}[] parameter(1)"
        opcode = "or" if dtype == "pred" else "maximum"
        made.append(f"max_{dtype} {{ {first} {second} ROOT c = {dtype}[] {opcode}(a, b) }}\n")
        made.append(f"last_{dtype} {{ {first} ROOT {second} }}\n")
    return "\n".join(made)
