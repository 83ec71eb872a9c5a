"""Elementwise operations against XLA on the CPU, over special values of every element type."""

import math

import numpy as np
import pytest
from single import by_xla, infer, mismatch, on_host

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.errors import VerifyError
from hlo2graph.hlo import DTYPES, DType, Instruction, Shape
from hlo2graph.ops import OPS
from hlo2graph.ops.conversion import CONVERSION
from hlo2graph.ops.elementwise import ELEMENTWISE
from hlo2graph.ops.elementwise_floats import erf

UNKNOWN = ("s1", "u1", "f6e2m3fn", "f6e3m2fn", "token", "opaque")  # to XLA on the CPU
TYPES = [d for d in DTYPES.values() if d.name not in UNKNOWN]
# Compiling takes XLA seconds a type; these differ from others here in their conversion alone.
ALIKE = {"f8e3m4", "f8e4m3", "f8e4m3fnuz", "f8e5m2fnuz"}
ARITHMETIC = [d for d in TYPES if d.name not in ALIKE]
PRED = DTYPES["pred"]
# XLA on the CPU has these only where it first converts to another type.
UNIMPLEMENTED = {"acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"}


def specials(dtype: DType) -> np.ndarray:
    """Return the values at which operations go wrong; no denormals, which XLA takes as 0."""
    if dtype is PRED:
        return np.array([False, True])
    if dtype.is_integer:
        low, high = dtype.limits
        wanted = {low, low + 1, *range(-9, 10), 15, 16, 31, 32, 33, 63, high - 1, high}
        held = [v for v in sorted(wanted) if low <= v <= high]
        return (
            np.array(held, np.int64 if low else np.uint64)
            .astype(dtype.numpy if dtype.bits >= 8 else np.int8)
            .astype(dtype.numpy)
        )
    if dtype.is_complex:
        return np.array([complex(a, b) for a in (1, -1.5, 0.3) for b in (0.5, -2)], dtype.numpy)
    values = [0.0, -0.0, 1, 0.5, 1.5, 2.5, 0.3, 0.7, 3, 7, 10, 100, 0.49999997, 88, 104]
    if dtype.bits >= 16:
        values += [np.inf, np.nan, 1e-4, 3e4]
    if dtype.bits >= 32:
        values += [1e30, 3e38, 2e-38, 2147483520.0, 2147483648.0, 9.3e18, 1.9e19]
    with np.errstate(all="ignore"):
        return np.array([*values, *(-v for v in values)]).astype(dtype.numpy)


def cases(dtype: DType) -> list[tuple[str, Shape, list[np.ndarray]]]:
    """Return (opcode, result, arguments) for each elementwise opcode that takes `dtype`."""
    values = specials(dtype)
    pairs = [grid.ravel() for grid in np.meshgrid(values, values)]
    found = []
    for spec in ELEMENTWISE:
        given = [values] if spec.arity == 1 else pairs
        shapes = [Shape(dtype, a.shape) for a in given]
        try:
            result = spec.infer(Instruction("r", spec.opcode, shapes[0]), shapes, {})
        except VerifyError:
            continue
        assert isinstance(result, Shape)
        found.append((spec.opcode, result, given))
    return found


def compared(opcode: str, dtype: DType, arguments: list[np.ndarray]) -> np.ndarray:
    """Tell where XLA on the CPU is the judge; elsewhere it departs from what the page says."""
    x, y = arguments[0], arguments[-1]
    if opcode == "power" and dtype.is_integer:
        return np.asarray(y < 64)  # XLA reads the exponent's low 6 bits only
    if opcode == "popcnt" and dtype.name in ("s2", "s4"):
        return np.asarray(x.astype(np.int8) >= 0)  # XLA counts the bits of a sign-extended byte
    if opcode in ("maximum", "minimum") and dtype.is_complex:
        return np.asarray(x.real != y.real)  # XLA leaves equal real parts unordered
    return np.ones(x.shape, bool)


@pytest.mark.parametrize("dtype", ARITHMETIC, ids=str)
def test_elementwise_opcodes_agree_with_xla(dtype: DType) -> None:
    asked = [
        case
        for case in cases(dtype)
        if case[0] != "mulhi"  # nor has XLA this one
        and not (case[0] in UNIMPLEMENTED and dtype.name in ("f16", "f32", "f64", "c64", "c128"))
        and not (dtype.name in ("f4e2m1fn", "f8e8m0fnu") and _leaves_range(case[0]))
    ]
    values = specials(dtype)
    pairs = [grid.ravel() for grid in np.meshgrid(values, values)]
    shapes = [Shape(dtype, a.shape) for a in (values, *pairs)]
    rows = [(op, result, [0] if len(given) == 1 else [1, 2], "") for op, result, given in asked]
    wanted = by_xla(rows, shapes, [values, *pairs])
    wrong = []
    for (opcode, result, given), want in zip(asked, wanted, strict=True):
        got = on_host(opcode, result, given, [dtype] * len(given))
        bad = mismatch(got, want, result.dtype) & compared(opcode, dtype, given)
        wrong += [
            f"{opcode}({', '.join(str(a[i]) for a in given)}) = {got[i]}, XLA has {want[i]}"
            for i in np.flatnonzero(bad)[:3]
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_mulhi_is_the_upper_half_of_the_product(name: str) -> None:
    dtype = DTYPES[name]
    x, y = (grid.ravel() for grid in np.meshgrid(specials(dtype), specials(dtype)))
    got = on_host("mulhi", Shape(dtype, x.shape), [x, y], [dtype, dtype])
    wanted = [int(a) * int(b) >> dtype.bits for a, b in zip(x, y, strict=True)]
    assert [int(value) for value in got] == wanted


def _leaves_range(opcode: str) -> bool:
    """f4e2m1fn has no NaN and f8e8m0fnu no 0: what becomes of them there is not defined."""
    return opcode not in ("abs", "add", "multiply", "maximum", "negate", "floor", "is-finite")


@pytest.mark.parametrize("opcode", sorted(UNIMPLEMENTED))
@pytest.mark.parametrize("name", ["f16", "f32", "f64", "c64", "c128"])
def test_functions_xla_lacks_on_the_cpu(opcode: str, name: str) -> None:
    dtype = DTYPES[name]
    x = np.array([0.25, 0.5, 0.75, 1.0] if opcode != "acosh" else [1.0, 1.5, 4.0], dtype.numpy)
    function = {"acos": "acos", "sinh": "sinh", "cosh": "cosh"}.get(opcode, opcode)
    with np.errstate(all="ignore"):
        want = [getattr(math, function)(float(v.real)) if _inside(opcode, v) else np.inf for v in x]
    got = on_host(opcode, Shape(dtype, x.shape), [x], [dtype])
    np.testing.assert_allclose(
        got.real.astype(np.float64), want, rtol=2e-3 if name == "f16" else 1e-6
    )


def _inside(opcode: str, value: complex) -> bool:
    return not (opcode == "atanh" and value.real == 1)


def test_erf_to_fourteen_digits() -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), [1e-300, -1e-20, np.inf, -np.inf]])
    want = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(erf(x), want, rtol=1e-14, atol=0)
    assert np.isnan(erf(np.array([np.nan])))[0]


@pytest.mark.parametrize("source", [d for d in TYPES if d.name != "f4e2m1fn"], ids=str)
def test_convert_agrees_with_xla(source: DType) -> None:
    values = specials(source)
    if source.is_float and source.bits > 16:
        more = [127.5, 128, -128.9, 255.9, 256, 65519, 65520, 464, 480, 61440, 2**-10, 1.00390625]
        values = np.concatenate([values, np.array(more, values.dtype)])
    targets = [d for d in TYPES if not (source.is_complex and d is PRED)]  # XLA dies on that one
    rows = [("convert", Shape(d, values.shape), [0], "") for d in targets]
    wanted = by_xla(rows, [Shape(source, values.shape)], [values])
    for target, want in zip(targets, wanted, strict=True):
        got = on_host("convert", Shape(target, values.shape), [values], [source])
        bad = mismatch(got, want, target)
        if target.name == "f4e2m1fn":
            bad &= ~np.isnan(values.astype(np.complex128))
        assert not bad.any(), f"to {target}: {values[bad]} is {got[bad]}, XLA has {want[bad]}"


def test_float_to_integer_saturates() -> None:
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 3e9, -3e9, 2.5], np.float32)
    s32 = on_host("convert", Shape(DTYPES["s32"], (8,)), [x], [DTYPES["f32"]])
    assert s32.tolist() == [0, 0, 2147483647, -2147483648, 0, 2147483647, -2147483648, 2]
    u8 = on_host("convert", Shape(DTYPES["u8"], (8,)), [x], [DTYPES["f32"]])
    assert u8.tolist() == [0, 0, 255, 0, 0, 255, 0, 2]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_compare_clamp_and_select_agree_with_xla(dtype: DType) -> None:
    values = specials(dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    z, choice = np.roll(x, 5), np.arange(len(x)) % 3 == 0
    pred, same = Shape(PRED, x.shape), Shape(dtype, x.shape)
    calls: list[tuple[str, Shape, list[int], dict[str, str]]] = [
        ("select", same, [3, 0, 1], {}),
        *(("compare", pred, [0, 1], {"direction": d}) for d in ("EQ", "NE")),
    ]
    if not dtype.is_complex:
        calls += [("clamp", same, [0, 1, 2], {})]
        calls += [("compare", pred, [0, 1], {"direction": d}) for d in ("LT", "LE", "GT", "GE")]
    if dtype.is_float:
        calls += [
            ("compare", pred, [0, 1], {"direction": d, "type": "TOTALORDER"})
            for d in ("EQ", "NE", "LT", "LE", "GT", "GE")
        ]
    arguments, types = [x, y, z, choice], [dtype, dtype, dtype, PRED]
    rows = [
        (op, result, used, "".join(f", {k}={v}" for k, v in attrs.items()))
        for op, result, used, attrs in calls
    ]
    wanted = by_xla(rows, [Shape(d, x.shape) for d in types], arguments)
    for (opcode, result, used, attrs), want in zip(calls, wanted, strict=True):
        given, of = [arguments[i] for i in used], [types[i] for i in used]
        got = on_host(opcode, result, given, of, **attrs)
        bad = mismatch(got, want, result.dtype)
        assert not bad.any(), f"{opcode} {attrs}: {[a[bad][:3] for a in given]}"


@pytest.mark.parametrize("name", ["f8e4m3fn", "f8e5m2", "bf16", "f16", "f32", "f64"])
def test_reduce_precision_agrees_with_xla(name: str) -> None:
    dtype = DTYPES[name]
    rng = np.random.default_rng(1)
    spread = np.clip(rng.standard_normal(200) * np.exp(rng.standard_normal(200) * 4), -200, 200)
    x = np.concatenate([specials(dtype), spread.astype(dtype.numpy)])
    same = Shape(dtype, x.shape)
    widths = [(5, 10), (8, 7), (4, 3), (5, 2), (8, 23), (11, 52), (2, 1), (1, 0), (8, 0), (3, 30)]
    rows = [
        ("reduce-precision", same, [0], f", exponent_bits={e}, mantissa_bits={m}")
        for e, m in widths
    ]
    for (e, m), want in zip(widths, by_xla(rows, [same], [x]), strict=True):
        got = on_host("reduce-precision", same, [x], [dtype], exponent_bits=e, mantissa_bits=m)
        bad = mismatch(got, want, dtype)
        assert not bad.any(), f"e{e}m{m}: {x[bad]} is {got[bad]}, XLA has {want[bad]}"


@pytest.mark.parametrize("target", ["s8", "s32"])
@pytest.mark.parametrize(
    ("source", "random"), [("f32", "u32"), ("bf16", "u16"), ("f16", "u16"), ("f64", "u64")]
)
def test_stochastic_convert_agrees_with_xla(source: str, random: str, target: str) -> None:
    """At the thresholds too: -2.5 rounds away for half of all bits, to the last one."""
    rng = np.random.default_rng(2)
    types = [DTYPES[source], DTYPES[random]]
    last = (1 << types[1].bits) - 1
    x = np.concatenate([specials(types[0]), (rng.standard_normal(99) * 50).astype(types[0].numpy)])
    x = np.concatenate([x, np.array([-2.5, 2.5, 2.0**-70], types[0].numpy)])
    bits = rng.integers(0, last, x.shape, np.uint64, endpoint=True).astype(types[1].numpy)
    bits[-3:] = last // 2, last // 2 + 1, 0
    result = Shape(DTYPES[target], x.shape)
    rows = [("stochastic-convert", result, [0, 1], "")]
    [want] = by_xla(rows, [Shape(d, x.shape) for d in types], [x, bits])
    got = on_host("stochastic-convert", result, [x, bits], types)
    np.testing.assert_array_equal(got, want)


def test_stochastic_convert_to_a_shorter_float_is_right_on_average() -> None:
    x = np.full(1 << 16, 1 + 2**-9, np.float32)  # a quarter of bfloat16's step above 1
    bits = np.random.default_rng(3).integers(0, 1 << 32, x.shape, np.uint64).astype(np.uint32)
    types = [DTYPES["f32"], DTYPES["u32"]]
    got = on_host("stochastic-convert", Shape(DTYPES["bf16"], x.shape), [x, bits], types)
    assert set(got.astype(np.float32).tolist()) == {1.0, 1.0078125}
    np.testing.assert_allclose(got.astype(np.float64).mean(), x[0], atol=1e-4)


@pytest.mark.parametrize(
    ("source", "target", "dims", "to"),
    [
        ("f32", "s32", (5,), (5,)),
        ("s32", "u8", (3,), (3, 4)),
        ("u8", "f32", (3, 4), (3,)),
        ("f64", "u32", (2, 2), (2, 2, 2)),
        ("u16", "bf16", (4,), (4,)),
        ("s8", "s4", (3,), (3, 2)),
        ("u4", "u8", (3, 2), (3,)),
        ("f32", "u4", (2,), (2, 8)),
    ],
)
def test_bitcast_convert_agrees_with_xla(
    source: str, target: str, dims: tuple[int, ...], to: tuple[int, ...]
) -> None:
    own, other = DTYPES[source], DTYPES[target]
    bits = np.random.default_rng(4).integers(0, 100, dims)
    x = bits.astype(np.int8).astype(own.numpy)
    rows = [("bitcast-convert", Shape(other, to), [0], "")]
    [want] = by_xla(rows, [Shape(own, dims)], [x])
    got = on_host("bitcast-convert", Shape(other, to), [x], [own])
    assert np.ascontiguousarray(got).tobytes() == want.tobytes()


def test_no_operation_warns_about_numbers() -> None:
    for dtype in TYPES:
        for opcode, result, given in cases(dtype):
            on_host(opcode, result, given, [dtype] * len(given))  # a warning would be an error


@pytest.mark.parametrize(
    ("opcode", "operands", "attrs", "message"),
    [
        ("add", ["f32[4]", "f32[5]"], {}, "add: needs operands of one shape, got f32[4], f32[5]"),
        ("add", ["f32[4]", "bf16[4]"], {}, "got f32[4], bf16[4]"),
        ("floor", ["s32[4]"], {}, "floor: needs floating-point numbers, got s32[4]"),
        ("subtract", ["pred[]", "pred[]"], {}, "subtract: needs"),
        ("and", ["f32[]", "f32[]"], {}, "and: needs pred or integers, got f32[]"),
        ("complex", ["bf16[]", "bf16[]"], {}, "complex: needs f32 or f64, got bf16[]"),
        ("negate", ["(f32[],f32[])"], {}, "negate: needs an array as its operand 0"),
        ("compare", ["f32[]", "f32[]"], {}, "needs the attribute direction, one of EQ, GE"),
        ("compare", ["c64[]", "c64[]"], {"direction": "LT", "type": "TOTALORDER"}, "TOTALORDER"),
        ("compare", ["s32[]", "s32[]"], {"direction": "LT", "type": "FLOAT"}, "got FLOAT"),
        ("select", ["s32[]", "f32[]", "f32[]"], {}, "needs pred as its first operand"),
        ("select", ["pred[3]", "f32[4]", "f32[4]"], {}, "needs operands of one shape, or scalars"),
        ("clamp", ["f32[]", "s32[4]", "f32[]"], {}, "needs bounds of the type s32"),
        ("reduce-precision", ["f32[]"], {"exponent_bits": 0}, "at least one exponent bit"),
    ],
)
def test_refusals(opcode: str, operands: list[str], attrs: dict[str, str], message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        infer(opcode, operands, **attrs)
    assert message in str(caught.value)


def test_results_have_their_own_types() -> None:
    assert infer("abs", ["c64[2]"]) == "f32[2]"
    assert infer("complex", ["f64[2]", "f64[2]"]) == "c128[2]"
    assert infer("is-finite", ["bf16[2]"]) == "pred[2]"
    assert infer("negate", ["s32[<=8]"]) == "s32[<=8]"
    assert infer("clamp", ["f32[]", "f32[4]", "f32[4]"]) == "f32[4]"
    assert infer("convert", ["f32[3]"], "s4[3]") == "s4[3]"


def test_every_elementwise_opcode_says_so() -> None:
    assert all(spec.elementwise for spec in ELEMENTWISE)
    assert {s.opcode for s in CONVERSION if not s.elementwise} == {"bitcast-convert"}
    assert OPS["add"].inplace == (0, 1)
    assert OPS["is-finite"].inplace == ()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s32", "u32", "pred"])
@pytest.mark.parametrize("order", ["TOTAL", "PARTIAL"])
def test_compare_in_the_spelling_of_newer_xla(dtype: str, order: str) -> None:
    """XLA 0.10 does not parse it; for floats TOTAL is what it calls TOTALORDER."""
    text = (
        f"HloModule m\nENTRY e {{ a = {dtype}[5] parameter(0) b = {dtype}[5] parameter(1) "
        f"ROOT r = pred[5] compare(a, b), direction=LT, order={order} }}"
    )
    old = "type=TOTALORDER" if dtype in ("f32", "bf16") and order == "TOTAL" else ""
    plain = text.replace(f", order={order}", f", {old}" if old else "")
    values = np.array([[0.0, -0.0, np.nan, 1, -1], [-0.0, 0.0, 1, np.nan, 3]])
    if dtype not in ("f32", "bf16"):
        values = np.abs(np.nan_to_num(values))
    given = [v.astype(hlo2graph.parse(text).entry.parameters[0].shape.dtype.numpy) for v in values]
    assert str(hlo2graph.parse(text)).count(f"order={order}") == 1
    found, want = (hlo2graph.compile(t, backend="host")(*given)[0] for t in (text, plain))
    np.testing.assert_array_equal(found, want)


def test_compare_in_total_order_of_newer_xla_on_the_device() -> None:
    text = (
        "HloModule m\nENTRY e { a = f32[5] parameter(0) b = f32[5] parameter(1) "
        "ROOT r = pred[5] compare(a, b), direction=LT, order=TOTAL }"
    )
    (kernel,) = kernels_of(hlo2graph.plan(text, target="sm_90")).values()
    assert "hlo::total_order" in kernel.text


@pytest.mark.parametrize("dims", ["", "1", "4"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_one_half_as_the_exponent_of_all_is_no_square_root(dtype, dims):
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[{dims}] parameter(0)
  half = {dtype}[] constant(0.5)
  all = {dtype}[{dims}] broadcast(half), dimensions={{}}
  ROOT r = {dtype}[{dims}] power(x, all)
}}"""
    shape = tuple(map(int, dims.split(","))) if dims else ()
    for given, wanted in ((-np.inf, np.inf), (-0.0, 0.0), (4.0, 2.0)):
        (found,) = hlo2graph.compile(text, "host")(np.full(shape, given, DTYPES[dtype].numpy))
        assert np.array_equal(found.astype(np.float64), np.full(shape, wanted))
        assert not np.signbit(found.astype(np.float64)).any()
