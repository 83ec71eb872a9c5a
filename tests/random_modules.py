"""Random HLO modules that any compiler runs to the same bits.

Operations, element types, layouts, loops, conditionals, calls, updates in place, aliasing and
control dependencies are drawn at will; what could round differently (float products, sums of many)
is left out. `random_module(rnd)` returns the text.
"""

from __future__ import annotations

import random

from random_nests import Nests
from random_values import Value, braced

DIMS = ((), (), (4,), (4,), (0,), (1,), (2, 3), (3, 2), (4, 4), (2, 0), (16384,), (128, 128))
DTYPES = (
    *("f32", "f32", "f32", "s32", "s32", "s32", "u8", "u8", "pred", "bf16", "s64", "f64"),
    *("f16", "s8", "s16", "u16", "u32", "u64", "s4", "u4", "s2", "c64", "c128"),
    *("f8e5m2", "f8e4m3fn", "f8e3m4", "f4e2m1fn"),
)
FLOATS = ("f32", "bf16", "f64", "f16", "f8e5m2", "f8e4m3fn", "f8e3m4", "f4e2m1fn")
COMPLEX = ("c64", "c128")
SIGNED = ("s32", "s64", "s8", "s16", "s4", "s2")
UNSIGNED = ("u8", "u16", "u32", "u64", "u4")
_REGIONS = {
    "pred": ("and", "or", "xor"),
    **dict.fromkeys(FLOATS, ("maximum", "minimum")),
    **dict.fromkeys((*SIGNED, *UNSIGNED), ("add", "xor", "minimum", "maximum", "multiply")),
    **dict.fromkeys(COMPLEX, ("add",)),
}
_LOWEST = {"f4e2m1fn": -6, "f8e4m3fn": -448}  # of what has no infinity
# A fold and its unit: XLA folds the start in any number of times, or never.
_FOLDS = {
    "pred": ("or", 0),
    **{d: ("maximum", _LOWEST.get(d, "-inf")) for d in FLOATS},
    **dict.fromkeys((*SIGNED, *UNSIGNED), ("add", 0)),
}
_BINARY = {d: (*ops, "add") if d in ("f32", "f64") else ops for d, ops in _REGIONS.items()}
_UNARY = {
    "pred": ("not",),
    **dict.fromkeys(FLOATS, ("negate", "abs")),
    **dict.fromkeys(SIGNED, ("negate", "not", "abs", "sign")),
    **dict.fromkeys(UNSIGNED, ("not", "count-leading-zeros")),
    **dict.fromkeys(COMPLEX, ("negate",)),
}


def random_module(rnd: random.Random, most: int = 8) -> str:
    """Return the text of a module; `most` bounds the entry's draws."""
    return _Writer(rnd).module(most)


class _Writer(Nests):
    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.computations: list[str] = []
        self.regions: dict[str, str] = {}
        self.count = 0
        self.layouts = rnd.random() < 0.3
        # Few shapes, so that values fit each other and updates in place come about.
        self.shapes = [(rnd.choice(DTYPES), rnd.choice(DIMS)) for _ in range(rnd.randint(1, 3))]

    def module(self, most: int) -> str:
        given = [self.rnd.choice(self.shapes) for _ in range(self.rnd.randint(1, 4))]
        values = [Value(f"p{k}", *shape) for k, shape in enumerate(given)]
        lines = [f"{v.name} = {self.shape(v)} parameter({k})" for k, v in enumerate(values)]
        inputs = list(values)
        self.block(lines, values, most, 2)
        roots = [self.any(values) for _ in range(self.rnd.randint(0, 4))]
        names, shapes = ", ".join(r.name for r in roots), ", ".join(map(self.shape, roots))
        lines.append(f"ROOT root = ({shapes}) tuple({names})")
        entry = f"ENTRY main {braced(lines)}"
        return "\n".join([f"HloModule m{self.aliases(inputs, roots)}\n", *self.computations, entry])

    def aliases(self, inputs: list[Value], roots: list[Value]) -> str:
        taken: list[int] = []
        found = []
        for leaf, root in enumerate(roots):
            fitting = [k for k, v in enumerate(inputs) if v[1:] == root[1:] and k not in taken]
            if fitting and self.rnd.random() < 0.5:
                taken.append(self.rnd.choice(fitting))
                kind = self.rnd.choice(("may", "must"))
                found.append(f"{{{leaf}}}: ({taken[-1]}, {{}}, {kind}-alias)")
        return f", input_output_alias={{ {', '.join(found)} }}" if found else ""

    def shape(self, value: Value) -> str:
        layout = ""
        if self.layouts and len(value.dims) > 1:
            layout = self.rnd.choice(("{0,1}", "{1,0}"))
        return f"{value.dtype}[{','.join(map(str, value.dims))}]{layout}"

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def any(self, values: list[Value]) -> Value:
        return self.rnd.choice(values[-5:] if self.rnd.random() < 0.6 else values)

    def like(self, values: list[Value], wanted: Value) -> Value:
        return self.any([v for v in values if v[1:] == wanted[1:]] or [wanted])

    def block(self, lines: list[str], values: list[Value], most: int, depth: int) -> None:
        """Write some instructions; what they give joins `values`."""
        kinds = _PLAIN + _NESTED * (depth > 0)
        for _ in range(self.rnd.randint(1, most)):
            getattr(self, f"_{self.rnd.choice(kinds)}")(lines, values, depth)

    def add(
        self, lines: list[str], values: list[Value], like: Value, call: str, name: str = ""
    ) -> Value:
        """Write one instruction of the element type and dimensions of `like`."""
        new = like._replace(name=name or self.fresh(call.partition("(")[0].replace("-", "_")))
        after = ""
        earlier = [v.name for v in values]
        if earlier and self.rnd.random() < 0.05:
            after = f", control-predecessors={{{self.rnd.choice(earlier)}}}"
        lines.append(f"{new.name} = {self.shape(new)} {call}{after}")
        values.append(new)
        return new

    def constant(self, lines: list[str], dtype: str, number: int | str) -> Value:
        """Write a scalar constant, and don't offer it as an operand."""
        text = str(number)
        if dtype == "pred":
            text = "true" if number in (1, 3) else "false"
        if dtype == "s2":
            text = str(number % 2)
        if dtype in COMPLEX:
            text = f"({number}, 1)"
        return self.add(lines, [], Value("", dtype, ()), f"constant({text})")

    def region(self, dtype: str, opcode: str) -> str:
        name = f"{opcode}_of_{dtype}"
        if name not in self.regions:
            self.regions[name] = (
                f"{name} {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
                f"  ROOT c = {dtype}[] {opcode}(a, b)\n}}\n"
            )
            self.computations.insert(0, self.regions[name])
        return name

    def _binary(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        b = self.like(values, a)
        self.add(lines, values, a, f"{self.rnd.choice(_BINARY[a.dtype])}({a.name}, {b.name})")

    def _unary(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        self.add(lines, values, a, f"{self.rnd.choice((*_UNARY[a.dtype], 'copy'))}({a.name})")

    def _compare(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        b, c = self.like(values, a), self.like(values, a)
        way = self.rnd.choice(("EQ", "NE") if a.dtype in COMPLEX else ("LT", "GE", "EQ", "NE"))
        call = f"compare({a.name}, {b.name}), direction={way}"
        chosen = self.add(lines, values, a._replace(dtype="pred"), call)
        self.add(lines, values, a, f"select({chosen.name}, {b.name}, {c.name})")

    def _convert(self, lines: list[str], values: list[Value], _: int) -> None:
        exact = [v for v in values if v.dtype not in (*FLOATS, *COMPLEX)]
        a = self.any(exact or values)
        dtype = self.rnd.choice(self.shapes)[0] if exact else a.dtype
        self.add(lines, values, a._replace(dtype=dtype), f"convert({a.name})")

    def _fill(self, lines: list[str], values: list[Value], _: int) -> None:
        dtype, dims = self.rnd.choice(self.shapes)
        scalar = self.constant(lines, dtype, self.rnd.randint(0, 3))
        like = Value("", dtype, dims)
        self.add(lines, values, like, f"broadcast({scalar.name}), dimensions={{}}")

    def _constant(self, lines: list[str], values: list[Value], _: int) -> None:
        values.append(self.constant(lines, self.rnd.choice(self.shapes)[0], 1))

    def _reverse(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        if a.dims:
            self.add(lines, values, a, f"reverse({a.name}), dimensions={{{len(a.dims) - 1}}}")

    def _transpose(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        if len(a.dims) == 2:
            turned = a._replace(dims=a.dims[::-1])
            self.add(lines, values, turned, f"transpose({a.name}), dimensions={{1,0}}")

    def _reshape(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        if len(a.dims) == 2:
            flat = a._replace(dims=(a.dims[0] * a.dims[1],))
            flat = self.add(lines, values, flat, f"reshape({a.name})")
            self.add(lines, values, a, f"reshape({flat.name})")

    def _concatenate(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        if a.dims and a.dtype != "s2":  # of which XLA dies
            b = self.like(values, a)
            wide = a._replace(dims=(2 * a.dims[0], *a.dims[1:]))
            call = f"concatenate({a.name}, {b.name}), dimensions={{0}}"
            both = self.add(lines, values, wide, call)
            ends = [(a.dims[0] // 2, a.dims[0] // 2 + a.dims[0]), *((0, n) for n in a.dims[1:])]
            cut = ", ".join(f"[{low}:{high}]" for low, high in ends)
            self.add(lines, values, a, f"slice({both.name}), slice={{{cut}}}")

    def starts(self, lines: list[str], values: list[Value], rank: int) -> list[str]:
        """Return indices, computed ones where there are some; they may be out of bounds."""
        known = [v for v in values if v[1:] == ("s32", ())]
        return [
            (
                self.rnd.choice(known)
                if known and self.rnd.random() < 0.6
                else self.constant(lines, "s32", self.rnd.randint(-1, 5))
            ).name
            for _ in range(rank)
        ]

    def _update(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        if not a.dims:
            return
        part = a._replace(dims=tuple(min(n, self.rnd.randint(1, 3)) for n in a.dims))
        at = ", ".join(self.starts(lines, values, len(a.dims)))
        sizes = ",".join(map(str, part.dims))
        source = self.like(values, a)
        cut = f"dynamic-slice({source.name}, {at}), dynamic_slice_sizes={{{sizes}}}"
        # The piece is no operand for others: XLA gets slices of clamped slices wrong.
        piece = self.add(lines, [], part, cut)
        self.add(lines, values, a, f"dynamic-update-slice({a.name}, {piece.name}, {at})")

    def _scatter(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        if len(a.dims) != 1 or not a.dims[0]:
            return
        at = self.add(lines, [], Value("", "s32", (2, 1)), "iota(), iota_dimension=0")
        scalar = self.constant(lines, a.dtype, 2)
        new = self.add(
            lines, [], a._replace(dims=(2,)), f"broadcast({scalar.name}), dimensions={{}}"
        )
        region = self.region(a.dtype, self.rnd.choice(_REGIONS[a.dtype]))
        call = (
            f"scatter({a.name}, {at.name}, {new.name}), update_window_dims={{}}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
            f"to_apply={region}"
        )
        self.add(lines, values, a, call)

    def _reduce(self, lines: list[str], values: list[Value], _: int) -> None:
        a = self.any(values)
        if a.dims and a.dtype in _FOLDS:
            opcode, unit = _FOLDS[a.dtype]
            init = self.constant(lines, a.dtype, unit)
            dims = ",".join(map(str, range(len(a.dims))))
            call = (
                f"reduce({a.name}, {init.name}), dimensions={{{dims}}}, "
                f"to_apply={self.region(a.dtype, opcode)}"
            )
            total = self.add(lines, values, a._replace(dims=()), call)
            self.add(lines, values, a, f"broadcast({total.name}), dimensions={{}}")

    def _barrier(self, lines: list[str], values: list[Value], _: int) -> None:
        held = [self.any(values) for _ in range(self.rnd.randint(1, 3))]
        self.pick(lines, values, held, f"opt-barrier({self.tuple(lines, held)})")

    def tuple(self, lines: list[str], held: list[Value]) -> str:
        name = self.fresh("tuple")
        shapes, names = ", ".join(map(self.shape, held)), ", ".join(v.name for v in held)
        lines.append(f"{name} = ({shapes}) tuple({names})")
        return name

    def pick(self, lines: list[str], values: list[Value], leaves: list[Value], call: str) -> None:
        """Write a call that gives a tuple, and take some of its leaves out."""
        name = self.fresh(call.partition("(")[0].replace("-", "_"))
        lines.append(f"{name} = ({', '.join(map(self.shape, leaves))}) {call}")
        for k, leaf in enumerate(leaves):
            if self.rnd.random() < 0.8:
                self.add(lines, values, leaf, f"get-tuple-element({name}), index={k}")


_PLAIN = (
    *("binary", "binary", "binary", "unary", "unary", "compare", "convert", "fill", "constant"),
    *("reverse", "transpose", "reshape", "concatenate", "update", "update", "update", "scatter"),
    *("reduce", "barrier", "nest", "ordered", "reduced"),
)
_NESTED = ("loop", "loop", "loop", "choice", "choice", "call", "fusion", "fusion")
