"""Device rules: every opcode has one or says why not, and every kernel compiles without a GPU."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from conftest import RUNNABLE
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from kernel_programs import PROGRAMS
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.cache import VARIABLE
from hlo2graph.backends.cuda.compiler import compile_units, unit_text
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.host import HostExecutable
from hlo2graph.hlo import DTYPES, Kind
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.ops import OPS
from hlo2graph.ops.device import ByInstruction, ByLeaf, NoDevice, OwnKernel
from hlo2graph.ops.elementwise import ELEMENTWISE
from hlo2graph.ops.expect import FLOATS
from hlo2graph.ops.spec import Lowering
from tests.emulation import EmulatedExecutable, Kernels

PER_UNIT = 24
TYPES = [d for d in DTYPES.values() if d.kind not in (Kind.TOKEN, Kind.OPAQUE)]
NARROW = [d for d in TYPES if d.is_float and d.bits <= 16]


def test_every_opcode_says_how_it_runs_on_the_device():
    for opcode, spec in OPS.items():
        match spec.device:
            case NoDevice(reason):
                host_only = opcode in ("fusion", "scan")  # taken apart; one step after another
                assert spec.lowering is not Lowering.KERNEL or host_only, opcode
                assert reason, opcode
            case rule:
                assert callable(rule) or isinstance(rule, ByLeaf | OwnKernel | ByInstruction)


# ---- compiling ---------------------------------------------------------------------------------


@cache
def all_kernels() -> tuple[str, ...]:
    """Return the text of every kernel of every sample and edge case, each under its own name."""
    plans = []
    for path in RUNNABLE:
        text = path.read_text()
        planned = path.suffix == ".thunks"
        plans += [hlo2graph.plan(text)] if planned else [plan_of(text, f) for f in FUSES]
    plans += [plan_of(text, "none") for text in PROGRAMS.values()]
    found = {s.text.replace(s.name, "NAME", 1): s for p in plans for s in kernels_of(p).values()}
    return tuple(text.replace("NAME", f"kernel_{k}", 1) for k, text in enumerate(found))


FUSES = ("none", "default")


def plan_of(text: str, fuse: str):
    return hlo2graph.plan(text, target="sm_90", fuse=fuse)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_kernel_compiles(arch, tmp_path_factory, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path_factory.getbasetemp() / "cubins"))
    texts = all_kernels()
    units = [unit_text(texts[k : k + PER_UNIT]) for k in range(0, len(texts), PER_UNIT)]
    assert all(c.cubin.startswith(b"\x7fELF") for c in compile_units(units, arch))


# ---- elementwise opcodes on special values -----------------------------------------------------


def _takes(spec, dtype) -> bool:
    """Tell whether the opcode's shape rule accepts the element type."""
    types = " ".join(f"p{k} = {dtype}[2] parameter({k})" for k in range(spec.arity))
    names = ", ".join(f"p{k}" for k in range(spec.arity))
    for result in {str(dtype), "pred", "f32", "f64", "c64", "c128"}:
        text = f"HloModule m ENTRY e {{ {types} ROOT r = {result}[2] {spec.opcode}({names}) }}"
        try:
            hlo2graph.parse(text)
        except hlo2graph.HloError:
            continue
        _RESULTS[spec.opcode, dtype.name] = result
        return True
    return False


_RESULTS: dict[tuple[str, str], str] = {}


@cache
def opcodes(name: str) -> tuple[str, ...]:
    return tuple(spec.opcode for spec in ELEMENTWISE if _takes(spec, DTYPES[name]))


def _module(name: str, size: int) -> str:
    """Return one fusion that applies every elementwise opcode to two arrays of a type."""
    lines, made = [], []
    for opcode in opcodes(name):
        operands = ", ".join("ab"[: OPS[opcode].arity])
        shape = f"{_RESULTS[opcode, name]}[{size}]"
        made.append((f"r{len(made)}", shape))
        lines.append(f"  {made[-1][0]} = {shape} {opcode}({operands})")
    shapes = ", ".join(shape for _, shape in made)
    root = f"  ROOT t = ({shapes}) tuple({', '.join(n for n, _ in made)})"
    parameters = f"a = {name}[{size}] parameter(0) b = {name}[{size}] parameter(1)"
    body = "\n".join([f"fused {{ {parameters}", *lines, root, "}"])
    call = f"ROOT r = ({shapes}) fusion(a, b), kind=kLoop, calls=fused"
    return f"HloModule m\n{body}\nENTRY e {{ {parameters} {call} }}"


SIZE = 256


@cache
def elementwise():
    plans = {d.name: plan_of(_module(d.name, SIZE), "none") for d in TYPES if opcodes(d.name)}
    return plans, Kernels(list(plans.values()))


@cache
def executables(name: str):
    plans, kernels = elementwise()
    return EmulatedExecutable(plans[name], kernels), HostExecutable(plans[name])


def _agree(name: str, a, b, finite_only: bool) -> None:
    ours, theirs = executables(name)
    for opcode, got, want in zip(opcodes(name), ours(a, b), theirs(a, b), strict=True):
        if finite_only and not _is_tame(opcode):
            continue
        dtype = DTYPES[_RESULTS[opcode, name]]
        tolerance = tolerance_for(dtype)
        found = compare(got, want, tolerance, f"{opcode} of {name}")
        assert found.ok, f"{found} at {a.reshape(-1)[found.at]}, {b.reshape(-1)[found.at]}"


def _is_tame(opcode: str) -> bool:
    return opcode in {"add", "subtract", "negate", "real", "imag", "maximum", "minimum"}


def _specials(dtype) -> np.ndarray:
    if dtype.kind is Kind.PRED:
        return np.array([False, True])
    if dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype.kind is Kind.SIGNED else 0
        high = low + (1 << dtype.bits) - 1
        near = [0, 1, -1, 2, 3, -3, 7, 8, 9, 31, 32, 33, 63, 64, low, low + 1, high, high - 1]
        return np.array([n for n in near if low <= n <= high], object).astype(dtype.numpy)
    real: np.ndarray = np.array(
        [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, 1e-3, -7.25, np.inf, -np.inf, np.nan, 4e4]
    )
    if dtype.is_complex:
        return np.array([complex(a, b) for a in real[:12] for b in real[:12]][::9], dtype.numpy)
    with np.errstate(all="ignore"):
        return real.astype(dtype.numpy)


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize("name", [d.name for d in TYPES])
def test_elementwise_opcodes_agree_at_special_values(name):
    values = _specials(DTYPES[name])
    a = np.resize(np.repeat(values, len(values)), SIZE)
    b = np.resize(np.tile(values, len(values)), SIZE)
    _agree(name, a, b, finite_only=False)


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize("name", ["s8", "u32", "s64", "f32", "f64", "bf16", "c64", "s4"])
def test_elementwise_opcodes_agree_at_any_value(name):
    dtype = DTYPES[name]

    @given(st.data())
    def check(data):
        a, b = (data.draw(_array(dtype)) for _ in range(2))
        _agree(name, a, b, finite_only=dtype.is_complex)

    check()


def _array(dtype):
    size = (SIZE,)
    if dtype.is_complex:
        return arrays.arrays(np.complex64, size)
    if dtype.name in ("bf16", "s4"):
        wide = np.float32 if dtype.is_float else np.int8
        return arrays.arrays(wide, size).map(lambda x: x.astype(dtype.numpy))
    return arrays.arrays(dtype.numpy, size)


# ---- narrow encodings, exhaustively --------------------------------------------------------------


def _wide(values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(np.float64)


def _conversions() -> str:
    lines, made = [], []
    for dtype in NARROW:
        lines.append(f"  p_{dtype} = {dtype}[65536] parameter({len(made)})")
        lines.append(f"  w_{dtype} = f32[65536] convert(p_{dtype})")
        made.append((f"w_{dtype}", "f32[65536]"))
    lines.append(f"  single = f32[{POINTS}] parameter({len(made)})")
    lines.append(f"  double = f64[{POINTS}] parameter({len(made) + 1})")
    for dtype in NARROW:
        for source in ("single", "double"):
            lines.append(f"  {source}_{dtype} = {dtype}[{POINTS}] convert({source})")
            made.append((f"{source}_{dtype}", f"{dtype}[{POINTS}]"))
    shapes, names = ", ".join(s for _, s in made), ", ".join(n for n, _ in made)
    return "\n".join(
        ["HloModule m", "ENTRY e {", *lines, f"  ROOT t = ({shapes}) tuple({names})}}"]
    )


def _points() -> np.ndarray:
    """Return every narrow value, what lies half way to the next, and both neighbours of that."""
    found = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, 3e38, 7e4])]
    for dtype in NARROW:
        patterns = np.arange(1 << min(dtype.bits, 8 * dtype.size), dtype=f"u{dtype.size}")
        values = _wide(patterns.view(dtype.numpy))
        values = np.unique(values[np.isfinite(values)])
        values = values[:: max(1, len(values) // 512)]
        halves = (values[:-1] + values[1:]) / 2
        with np.errstate(all="ignore"):
            single = halves.astype(np.float32)
        near = [np.nextafter(single, np.float32(way)) for way in (-np.inf, np.inf)]
        wide = [np.nextafter(halves, way) for way in (-np.inf, np.inf)]
        found += [values, halves, *near, *wide]
    return np.concatenate([f.astype(np.float64) for f in found])


POINTS = len(_points())


@needs_gxx
@pytest.mark.slow
def test_narrow_floats_convert_bit_for_bit():
    plan = plan_of(_conversions(), "none")
    patterns = [
        (np.arange(65536) % (1 << dtype.bits)).astype(f"u{dtype.size}").view(dtype.numpy)
        for dtype in NARROW
    ]
    points = _points()
    with np.errstate(all="ignore"):
        arguments = (*patterns, points.astype(np.float32), points)
    for got, want, bound in zip(
        EmulatedExecutable(plan)(*arguments),
        HostExecutable(plan)(*arguments),
        plan.outputs,
        strict=True,
    ):
        wide_got, wide_want = _wide(got), _wide(want)
        nan = np.isnan(wide_want)
        np.testing.assert_array_equal(np.isnan(wide_got), nan, bound.name)
        size = f"u{got.dtype.itemsize}"
        np.testing.assert_array_equal(got.view(size)[~nan], want.view(size)[~nan], bound.name)


def test_narrow_types_are_all_covered():
    assert {d.name for d in NARROW} == {d.name for d in FLOATS if d.bits <= 16}
