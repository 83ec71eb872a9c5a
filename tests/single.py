"""One instruction by itself, made without a parser: its shape, its value on the host and by XLA."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from xla import run_xla

from hlo2graph.frontend import parse, verify
from hlo2graph.hlo import (
    DTYPES,
    AnyShape,
    Attribute,
    Computation,
    DType,
    Instruction,
    Shape,
    TupleShape,
)
from hlo2graph.ops import OPS
from hlo2graph.ops.evaluate import HostEvaluator
from hlo2graph.ops.spec import HostValue

NONE: Mapping[str, Computation] = {}


def shape(text: str) -> AnyShape:
    """Read `f32[2,<=3]`, `token[]` or a tuple of such."""
    if text.startswith("("):
        inner = re.findall(r"\w+\[[^]]*\]", text)
        return TupleShape(tuple(shape(part) for part in inner))
    name, dims = text.rstrip("]").split("[")
    numbers = [d for d in dims.split(",") if d]
    dynamic = tuple(i for i, d in enumerate(numbers) if d.startswith("<="))
    return Shape(DTYPES[name], tuple(int(d.lstrip("<=")) for d in numbers), dynamic=dynamic)


def instruction(
    opcode: str, result: AnyShape, operands: int = 0, attrs: Mapping[str, Attribute] | None = None
) -> Instruction:
    return Instruction("r", opcode, result, tuple(f"p{i}" for i in range(operands)), attrs or {})


def infer(
    opcode: str,
    operands: Sequence[str],
    result: str = "f32[]",
    computations: Mapping[str, Computation] = NONE,
    **attrs: Attribute,
) -> str:
    """Return the shape inferred for an instruction, as text."""
    instr = instruction(opcode, shape(result), len(operands), attrs)
    given = [shape(text) for text in operands]
    return OPS[opcode].infer(instr, given, computations).without_layout_text()


def on_host(
    opcode: str,
    result: AnyShape,
    arguments: Sequence[np.ndarray],
    types: Sequence[DType],
    **attrs: Attribute,
) -> np.ndarray:
    """Return the value of one instruction; its inferred shape must be `result`."""
    shapes = [Shape(d, a.shape) for d, a in zip(types, arguments, strict=True)]
    parameters = [Instruction(f"p{i}", "parameter", s, payload=i) for i, s in enumerate(shapes)]
    root = instruction(opcode, result, len(shapes), attrs)
    assert OPS[opcode].infer(root, shapes, NONE).compatible(result)
    evaluate = HostEvaluator({"e": Computation("e", (*parameters, root), "r")})
    value = evaluate("e", arguments)
    assert isinstance(value, np.ndarray)
    assert Shape(result.dtype, value.shape).compatible(result)
    assert value.dtype == result.dtype.numpy
    return value


def by_xla(
    rows: Sequence[tuple[str, Shape, Sequence[int], str]],
    shapes: Sequence[Shape],
    arguments: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Return XLA's values of several instructions, each (opcode, shape, parameters, attributes)."""
    lines = [f"  p{i} = {s} parameter({i})" for i, s in enumerate(shapes)]
    for at, (opcode, result, used, attrs) in enumerate(rows):
        operands = ", ".join(f"p{i}" for i in used)
        lines.append(f"  r{at} = {result} {opcode}({operands}){attrs}")
    results = ", ".join(f"r{at}" for at in range(len(rows)))
    types = ", ".join(str(result) for _, result, _, _ in rows)
    root = f"  ROOT t = ({types}) tuple({results})"
    return run_xla("\n".join(["HloModule m", "ENTRY e {", *lines, root, "}"]), arguments)


def mismatch(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    """Return where values differ: at all for integers, beyond rounding and in sign for floats."""
    if not dtype.is_float and not dtype.is_complex:
        return np.asarray(got != want)
    relative = {8: 0.26, 4: 0.5, 16: 2e-3 if dtype.name == "f16" else 2e-2, 32: 2e-6}
    bound = 2e-5 if dtype.name == "c64" else relative.get(dtype.bits, 1e-12)
    wide = np.complex128 if dtype.is_complex else np.float64
    with np.errstate(all="ignore"):
        if dtype.is_float and dtype.bits > 8:
            got, want = (_flushed(x, dtype) for x in (got, want))
        got, want = got.astype(wide), want.astype(wide)
        near = np.isclose(got, want, rtol=bound, atol=1e-7 if dtype.is_complex else 0)
    both_nan = np.isnan(got) & np.isnan(want)
    signed = dtype.is_complex or np.signbit(got) == np.signbit(want)
    return ~(both_nan | near & signed)


def _flushed(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Take denormals as 0, as XLA's code on the CPU does."""
    lowest = 2.0**-14 if dtype.name == "f16" else 2.0**-1022 if dtype.bits == 64 else 2.0**-126
    wide = x.astype(np.float64)
    return np.where(np.abs(wide) < lowest, np.copysign(0, wide), wide)


def leaves(value: HostValue) -> list[np.ndarray]:
    """Return the arrays in a value, in order."""
    return (
        [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]
    )


def run_text(text: str, arguments: Sequence[HostValue]) -> list[np.ndarray]:
    """Return the result leaves of a module's entry on the host, its shapes verified."""
    module = verify(parse(text))
    return leaves(HostEvaluator(module.computations)(module.entry_name, arguments))


def one_call(call: str) -> str:
    """Return a module of one instruction, whose operands carry their shapes, as `f32[3] a`."""
    inner = call[call.index("(", 1 if call[0] != "(" else call.index(")")) :].split(")")[0]
    shapes = re.findall(r"([a-z]\w*\[[^]]*\](?:\{[^}]*\})?) (\w+)", inner)
    lines = [f"  {name} = {of} parameter({at})" for at, (of, name) in enumerate(shapes)]
    return "\n".join(["HloModule m", "ENTRY e {", *lines, f"  ROOT r = {call}", "}"])
