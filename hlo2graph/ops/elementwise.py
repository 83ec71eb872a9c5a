"""Elementwise opcodes, one row each: result[i] = f(a[i], b[i], ...).

Semantics follow OpenXLA's operation page, sections "Element-wise unary functions" and
"Element-wise binary arithmetic operations"; where it is silent, XLA on the CPU decides. To add an
opcode, add a row and a sample that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TypeAlias

import numpy as np

from hlo2graph.hlo import DTYPES, AnyShape, DType, Instruction, Shape
from hlo2graph.ops import elementwise_complex as whole
from hlo2graph.ops import elementwise_floats as floats
from hlo2graph.ops import elementwise_integers as integers
from hlo2graph.ops import elementwise_mixed as mixed
from hlo2graph.ops.device import function
from hlo2graph.ops.expect import (
    ALL,
    COMPLEX,
    FLOATS,
    INEXACT,
    INTEGERS,
    NUMBERS,
    PREDS,
    SIGNED,
    accepts,
    as_arrays,
    dynamic_of,
    refuse,
    written,
)
from hlo2graph.ops.spec import Array, Computations, Evaluator, HostValue, OpSpec
from hlo2graph.ops.widening import dtype_of, widen

Rule: TypeAlias = Callable[..., Array]
_PRED = DTYPES["pred"]
_COMPONENT = {DTYPES["c64"]: DTYPES["f32"], DTYPES["c128"]: DTYPES["f64"]}
_OF_PARTS = {DTYPES["f32"]: DTYPES["c64"], DTYPES["f64"]: DTYPES["c128"]}


def _same(dtype: DType) -> DType:
    return dtype


def _component(dtype: DType) -> DType:
    return _COMPONENT.get(dtype, dtype)


def _of_parts(dtype: DType) -> DType:
    return _OF_PARTS[dtype]


def _pred(_: DType) -> DType:
    return _PRED


def common(instr: Instruction, operands: Sequence[AnyShape]) -> Shape:
    """Return the one shape that all operands of an elementwise instruction have."""
    shapes = as_arrays(instr, operands)
    first = shapes[0]
    for other in shapes[1:]:
        if not other.compatible(first):
            listed = ", ".join(s.without_layout_text() for s in shapes)
            refuse(instr, f"needs operands of one shape, got {listed}")
    return Shape(first.dtype, first.dims, dynamic=dynamic_of(*shapes))


def _row(
    opcode: str,
    arity: int,
    taken: Set[DType],
    host: Rule,
    result: Callable[[DType], DType] = _same,
    *,
    bits: bool = False,
) -> OpSpec:
    """Describe an opcode. With `bits`, `host` gets the operands' width as its first argument."""
    wanted = _describe(taken)

    def infer(instr: Instruction, operands: Sequence[AnyShape], _: Computations) -> Shape:
        shape = common(instr, operands)
        accepts(instr, shape, taken, wanted)
        return Shape(result(shape.dtype), shape.dims, dynamic=shape.dynamic)

    def run(instr: Instruction, operands: Sequence[HostValue], _: Evaluator) -> Array:
        given = [np.asarray(x) for x in operands]
        wide = [widen(x) for x in given]
        out = host(dtype_of(given[0]).bits, *wide) if bits else host(*wide)
        return np.asarray(out).astype(written(instr).dtype.numpy, copy=False)

    inplace = tuple(range(arity)) if result is _same else ()
    return OpSpec(
        opcode,
        arity,
        infer,
        run,
        elementwise=True,
        inplace=inplace,
        attrs=_ATTRS.get(opcode, _NO),
        device=function(opcode),
    )


def _describe(taken: Set[DType]) -> str:
    """Name the kinds of element types; the widest kind stands for those inside it."""
    names = {
        PREDS: "pred",
        SIGNED: "" if taken >= INTEGERS else "signed integers",
        INTEGERS: "integers",
        FLOATS: "floating-point numbers",
        COMPLEX: "complex numbers",
    }
    held = [text for dtypes, text in names.items() if text and dtypes <= taken]
    return " or ".join(held or sorted(d.name for d in taken))


_NO: frozenset[str] = frozenset()
_ACCURACY = frozenset({"result_accuracy"})
_ATTRS = dict.fromkeys(
    (
        *("cbrt", "cosine", "erf", "exponential", "exponential-minus-one", "log", "log-plus-one"),
        *("logistic", "rsqrt", "sine", "sqrt", "tan", "tanh"),
        *("acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"),
    ),
    _ACCURACY,
)
_BITS = INTEGERS | PREDS
_PARTS = frozenset(_OF_PARTS)

# fmt: off
ELEMENTWISE: tuple[OpSpec, ...] = (
    #    opcode                   n  accepts              on the host            result
    _row("abs",                   1, SIGNED | INEXACT,    mixed.absolute,        _component),
    _row("acos",                  1, INEXACT,             np.arccos),
    _row("acosh",                 1, INEXACT,             np.arccosh),
    _row("add",                   2, ALL,                 np.add),
    _row("and",                   2, _BITS,               np.bitwise_and),
    _row("asin",                  1, INEXACT,             np.arcsin),
    _row("asinh",                 1, INEXACT,             np.arcsinh),
    _row("atan2",                 2, INEXACT,             floats.atan2),
    _row("atanh",                 1, INEXACT,             np.arctanh),
    _row("cbrt",                  1, FLOATS,              np.cbrt),
    _row("ceil",                  1, FLOATS,              np.ceil),
    _row("complex",               2, _PARTS,              whole.of_parts,        _of_parts),
    _row("cosh",                  1, INEXACT,             np.cosh),
    _row("cosine",                1, INEXACT,             mixed.cosine),
    _row("count-leading-zeros",   1, INTEGERS,            integers.leading_zeros, bits=True),
    _row("divide",                2, NUMBERS,             mixed.divide),
    _row("erf",                   1, FLOATS,              floats.erf),
    _row("exponential",           1, INEXACT,             mixed.exponential),
    _row("exponential-minus-one", 1, INEXACT,             mixed.exponential_minus_one),
    _row("floor",                 1, FLOATS,              np.floor),
    _row("imag",                  1, INEXACT,             np.imag,               _component),
    _row("is-finite",             1, FLOATS,              np.isfinite,           _pred),
    _row("log",                   1, INEXACT,             floats.log),
    _row("log-plus-one",          1, INEXACT,             floats.log_plus_one),
    _row("logistic",              1, INEXACT,             floats.logistic),
    _row("maximum",               2, ALL,                 mixed.maximum),
    _row("minimum",               2, ALL,                 mixed.minimum),
    _row("mulhi",                 2, INTEGERS,            integers.high_product, bits=True),
    _row("multiply",              2, ALL,                 np.multiply),
    _row("negate",                1, NUMBERS,             np.negative),
    _row("not",                   1, _BITS,               np.invert),
    _row("or",                    2, _BITS,               np.bitwise_or),
    _row("popcnt",                1, INTEGERS,            integers.popcount,     bits=True),
    _row("power",                 2, NUMBERS,             mixed.power),
    _row("real",                  1, INEXACT,             np.real,               _component),
    _row("remainder",             2, INTEGERS | FLOATS,   mixed.remainder),
    _row("round-nearest-afz",     1, FLOATS,              floats.round_away),
    _row("round-nearest-even",    1, FLOATS,              np.rint),
    _row("rsqrt",                 1, INEXACT,             floats.rsqrt),
    _row("shift-left",            2, INTEGERS,            integers.shift_left,   bits=True),
    _row("shift-right-arithmetic", 2, INTEGERS,           integers.shift_right_arithmetic,
                                                                                 bits=True),
    _row("shift-right-logical",   2, INTEGERS,            integers.shift_right_logical, bits=True),
    _row("sign",                  1, SIGNED | INEXACT,    mixed.sign),
    _row("sine",                  1, INEXACT,             mixed.sine),
    _row("sinh",                  1, INEXACT,             np.sinh),
    _row("sqrt",                  1, INEXACT,             floats.sqrt),
    _row("subtract",              2, NUMBERS,             np.subtract),
    _row("tan",                   1, INEXACT,             mixed.tan),
    _row("tanh",                  1, INEXACT,             mixed.tanh),
    _row("xor",                   2, _BITS,               np.bitwise_xor),
)
# fmt: on
