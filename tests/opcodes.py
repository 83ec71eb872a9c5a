"""Write hlo2graph/ops/OPCODES.md, which says for each opcode of HLO how it runs and what pins it.

    python -m tests.opcodes

The tests looked at are those that hold results against XLA's or a definition, or a kernel's against
the host's. One pins an opcode where it holds HLO text of it, or goes over a table that has it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from hlo2graph import ops
from hlo2graph.hlo import Instruction, Shape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_call import TARGETS
from hlo2graph.ops.custom_jax import REFUSALS
from hlo2graph.ops.custom_lapack import routine_of
from hlo2graph.ops.custom_target import Target
from hlo2graph.ops.device import ByInstruction, ByLeaf, NoDevice, OwnKernel, device_of
from hlo2graph.ops.spec import Lowering, OpSpec, always
from hlo2graph.passes.sizes.rules import CALLS_ABOUT_SIZES

ROOT = Path(__file__).parent.parent
FILE = ROOT / "hlo2graph" / "ops" / "OPCODES.md"
COMMAND = "python -m tests.opcodes"
# All that the parser of jaxlib 0.10.2 takes for an opcode.
_NAMES = """
    abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start
    all-reduce all-reduce-done all-reduce-start all-to-all and asin asinh async-done async-start
    async-update atan2 atanh batch-norm-grad batch-norm-inference batch-norm-training bitcast
    bitcast-convert broadcast call cbrt ceil cholesky clamp collective-broadcast collective-permute
    collective-permute-done collective-permute-start compare complex concatenate conditional
    constant convert convolution copy copy-done copy-start cosh cosine count-leading-zeros
    custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf exponential
    exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed
    iota is-finite log log-plus-one logistic map maximum minimum mulhi multiply negate not
    opt-barrier or outfeed pad parameter partition-id popcnt power ragged-all-to-all ragged-dot real
    recv recv-done reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape
    reverse rng rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even
    rsqrt scaled-dot scan scatter select select-and-scatter send send-done set-dimension-size
    shift-left shift-right-arithmetic shift-right-logical sign sine sinh slice sort sqrt
    stochastic-convert subtract tan tanh topk transpose triangular-solve tuple while xor
"""
HLO = frozenset(_NAMES.split())
HEAD = f"""\
# The opcodes of HLO

How each runs, and what pins it: tests by name, and samples, all of whose kernels are run against
the host's results. Written by `{COMMAND}`; a test compares it with the code.

- On the host, NumPy's rule is the definition of correct. Where a cell gives a reason, programs with
  that opcode parse, verify and plan, and are refused by name when they are to run; so are *some* of
  other opcodes: between several devices, with sizes that only a run knows and that
  cannot be followed, with constants left out.
- On the device, an *element* rule is C++ for one element, in loops and fusions alike; a *kernel*
  has a form of its own. What is *taken apart* is gone before there are kernels, on both backends:
  it becomes thunks, views, or nothing.

"""
PINNING = (
    "kernel_layouts.py",
    "kernel_programs.py",
    "random_modules.py",
    "test_sizes.py",
    "test_custom_*.py",
    "test_one_device.py",
    "test_ops_*.py",
)
TARGETS_HEAD = """
## Targets of custom calls

Those of cuBLAS and cuDNN whose configuration asks for something unknown are refused with what that
is, and so is every target that is not listed.

"""
_TEXT = r"[\]}})] {}\("  # `f32[4]{{0}} add(`: an instruction, not a call in Python


def table() -> str:
    """Return the whole file."""
    rows = [_row(opcode) for opcode in sorted(HLO | OPS.keys())]
    head = ("opcode", "family", "host", "device", "tests", "samples")
    lines = [head, ("---",) * len(head), *rows]
    return HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines) + _targets()


def _row(opcode: str) -> tuple[str, ...]:
    spec = OPS[opcode]
    tests, samples = ", ".join(pinned_by(opcode)), ", ".join(_samples(opcode))
    return f"`{opcode}`", families()[opcode], host(spec), device(spec), tests, samples


def _targets() -> str:
    """Return the list of custom calls' targets, by how they run."""
    found: dict[str, list[str]] = {}
    for name, target in sorted(TARGETS.items()):
        found.setdefault(_running(name, target), []).append(f"`{name}`")
    parts = (f"- {how}: {', '.join(names)}.\n" for how, names in sorted(found.items()))
    return TARGETS_HEAD + "".join(parts)


def _running(name: str, target: Target) -> str:
    call = Instruction("x", "custom-call", Shape(S32), (), {"custom_call_target": name})
    reason = target.why_not(call)
    if name in CALLS_ABOUT_SIZES:
        return "Taken apart, wherever the sizes that they are about can be followed"
    if reason in REFUSALS:
        return f"Refused, because each {reason}"
    routine = routine_of(name)
    if routine is None:
        return "Run on both"
    if "trsm" in name:
        return "Run on both, as HLO's triangular-solve"
    if routine.most is None:
        return "Run on the host, and refused on the device"
    return f"Run on both, on the device for up to {routine.most} rows"


def bare(opcode: str) -> Instruction:
    """Return an instruction of the opcode with nothing that could speak against it."""
    return Instruction("x", opcode, Shape(S32))


@cache
def families() -> dict[str, str]:
    """Return the file of the op table that each opcode is in."""
    found = {}
    for module in iter_modules(ops.__path__):
        held = vars(import_module(f"{ops.__name__}.{module.name}"))
        for name, value in held.items():
            specs = (value,) if isinstance(value, OpSpec) else value
            if name.isupper() and isinstance(specs, tuple):
                found.update(
                    {s.opcode: _file(module.name, s) for s in specs if isinstance(s, OpSpec)}
                )
    return found


def _file(module: str, spec: OpSpec) -> str:
    """Return the file that describes an opcode: imports elsewhere do not count."""
    held = {m.name for m in iter_modules(ops.__path__)}
    inferred = spec.infer.__module__.rpartition(".")[2]
    return inferred if inferred in held and not module.startswith(inferred) else module


def host(spec: OpSpec) -> str:
    """Return how the host runs an opcode, or why it does not."""
    if spec.lowering is Lowering.HOST_IO:
        return spec.why_not(bare(spec.opcode)) or "NumPy"
    if spec.opcode == "custom-call":
        return "by target"
    return "NumPy" if spec.why_not is always else "NumPy; some refused"


def device(spec: OpSpec) -> str:
    """Return how the device runs an opcode, or why it does not."""
    if isinstance(spec.device, ByInstruction):
        return "by target" if spec.opcode == "custom-call" else _rule(spec) or "by instruction"
    return _rule(spec)


_OTHERWISE = {
    "scan": "taken apart: a loop",
    "fusion": "kernel of what is in it",
    **dict.fromkeys(("conditional", "while"), "taken apart; of scalars in a region, element"),
}


def _rule(spec: OpSpec) -> str:
    if spec.opcode in _OTHERWISE:
        return _OTHERWISE[spec.opcode]
    match device_of(spec.device, bare(spec.opcode)):
        case NoDevice(reason):
            return "taken apart" if "taken apart" in reason else reason
        case OwnKernel(form):
            return f"kernel: {form}"
        case ByLeaf():
            return "element, a leaf at a time"
        case _:
            return "element"


@cache
def _texts() -> dict[str, tuple[str, frozenset[str]]]:
    """Return, for each test file, its text and the strings that stand alone in it."""
    paths = sorted(path for pattern in PINNING for path in (ROOT / "tests").glob(pattern))
    texts = {path.stem.removeprefix("test_"): path.read_text() for path in paths}
    return {name: (text, frozenset(_strings(ast.parse(text)))) for name, text in texts.items()}


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def pinned_by(opcode: str) -> list[str]:
    """Return the test files that run, or refuse, programs with the opcode."""
    written = re.compile(_TEXT.format(re.escape(opcode)))
    return [
        name
        for name, (text, strings) in _texts().items()
        if written.search(text) or opcode in strings or _is_made(opcode, text, strings)
    ]


def _is_made(opcode: str, text: str, strings: frozenset[str]) -> bool:
    """Tell whether a test goes over a table with the opcode, or makes its name of two parts."""
    if any(opcode in names and f"in {table}:" in text for table, names in _tables().items()):
        return True
    words = opcode.split("-")
    parts = (("-".join(words[:k]), "-".join(words[k:])) for k in range(1, len(words)))
    return any(f"{first}-{{" in text and last in strings for first, last in parts)


@cache
def _tables() -> dict[str, set[str]]:
    """Return the opcodes of each table of the op table."""
    found = {}
    for module in iter_modules(ops.__path__):
        for name, value in vars(import_module(f"{ops.__name__}.{module.name}")).items():
            if name.isupper() and isinstance(value, tuple):
                found[name] = {spec.opcode for spec in value if isinstance(spec, OpSpec)}
    return found


def _samples(opcode: str) -> list[str]:
    pattern = re.compile(_TEXT.format(re.escape(opcode)))
    paths = sorted((ROOT / "samples").glob("*.hlo"))
    found = [p.stem for p in paths if pattern.search(p.read_text())]
    return found if len(found) < 4 else [*found[:3], "..."]


if __name__ == "__main__":
    FILE.write_text(table())
