"""Random operations on each element alone."""

from __future__ import annotations

from collections.abc import Sequence

from random_shapes import Shaping

SIGNED = ("s8", "s16", "s32", "s64", "s4", "s2")
UNSIGNED = ("u8", "u16", "u32", "u64", "u4", "u2")
INTEGERS = (*SIGNED, *UNSIGNED)
WIDE = ("f32", "f32", "f64", "bf16", "f16")
NARROW = (
    *("f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"),
    *("f8e8m0fnu", "f4e2m1fn"),
)
FLOATS = (*WIDE, *WIDE, *NARROW)
COMPLEX = ("c64", "c128")
ALL = (*INTEGERS, *FLOATS, *COMPLEX, "pred")
_ROUND = ("floor", "ceil", "round-nearest-afz", "round-nearest-even", "sign", "abs", "negate")
_CURVES = ("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "sqrt")
_MORE = ("rsqrt", "cbrt", "tanh", "sine", "cosine", "tan", "erf")
_ARITHMETIC = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum")
_BITS = ("and", "or", "xor")
_SHIFTS = ("shift-left", "shift-right-arithmetic", "shift-right-logical")
_COMPLEX = ("negate", "sign", *_CURVES, "rsqrt", "tanh", "sine", "cosine", "tan")


def _pairs(*kinds: tuple[Sequence[str], Sequence[str]]) -> tuple[tuple[Sequence[str], str], ...]:
    """Return each opcode with the element types that it takes, so that all are drawn as often."""
    return tuple((dtypes, opcode) for dtypes, opcodes in kinds for opcode in opcodes)


_UNARY = _pairs(
    (FLOATS, (*_ROUND, *_CURVES, *_MORE)),
    (INTEGERS, ("not", "count-leading-zeros")),
    ([d for d in INTEGERS if d != "s4"], ("popcnt",)),  # XLA counts an s4's sign four times over
    (SIGNED, ("negate", "abs", "sign")),
    (("pred",), ("not",)),
)
_BINARY = _pairs(
    (INTEGERS, (*_ARITHMETIC, *_BITS, *_SHIFTS, "power")),
    (FLOATS, (*_ARITHMETIC, "atan2", "power")),
    (COMPLEX, ("add", "subtract", "multiply", "maximum", "minimum")),
    (("pred",), (*_BITS, "add", "multiply", "maximum", "minimum")),
)


class Elements(Shaping):
    """Each public method writes one operation."""

    def unary(self) -> None:
        dtypes, opcode = self.pick(_UNARY)
        x = self.array(self.pick(dtypes))
        self.root(x.dtype, x.dims, f"{opcode}({x.name})")

    def complex_parts(self) -> None:
        x = self.array(self.pick(COMPLEX))
        part = {"c64": "f32", "c128": "f64"}[x.dtype]
        self.root(part, x.dims, f"{self.pick(('real', 'imag', 'abs'))}({x.name})")

    def complex_unary(self) -> None:
        x = self.array(self.pick(COMPLEX))
        self.root(x.dtype, x.dims, f"{self.pick(_COMPLEX)}({x.name})")

    def complex_whole(self) -> None:
        x = self.array(self.pick(("f32", "f64")))
        y = self.given(x.dtype, x.dims)
        self.root({"f32": "c64", "f64": "c128"}[x.dtype], x.dims, f"complex({x.name}, {y.name})")

    def binary(self) -> None:
        dtypes, opcode = self.pick(_BINARY)
        x = self.array(self.pick(dtypes))
        y = self.given(x.dtype, x.dims)
        self.root(x.dtype, x.dims, f"{opcode}({x.name}, {y.name})")

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
        source = self.pick(("f32", "f64", "bf16", "f16"))
        x = self.array(source)
        bits = self.given({"f32": "u32", "f64": "u64"}.get(source, "u16"), x.dims)
        target = self.pick(SIGNED)
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
