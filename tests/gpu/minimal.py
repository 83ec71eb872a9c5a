"""What a device does at best: the figures that the bound of a program is made of.

    python -m tests.gpu.minimal [--out DIR]

- What a graph of one small kernel takes on the device, beside that kernel.
- How long the smallest kernel of each form takes in a graph, from node to node: chains of such
  kernels, of two lengths, replayed back to back; the difference over the difference in length.
- What one step takes that waits for the one before it, by kind (tests/gpu/steps.py).
- Bytes a second of a large copy, and operations a second of large products, by unit.

Prints the row for hlo2graph/program/device_figures.py; --out gets minimal.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

LENGTHS = (64, 512)  # nodes of the two chains
DEPTHS = (32, 128, 512, 2048, 4096)
SIDE = 16  # rows and columns of a minimal product
COPIED = 100 << 20  # elements of 4 bytes
SQUARES = {"f32": 8192, "bf16": 8192, "f64": 4096}
QUEUED, REPEATS = 50, 7


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    from hlo2graph.errors import BackendError
    from tests.gpu.steps import step_seconds
    from tests.gpu.suite import describe

    try:
        environment = describe(None)
    except BackendError as error:
        print(f"nothing to measure on: {error}", file=sys.stderr)
        return 3
    found: dict[str, object] = {"environment": environment, **latencies()}
    found |= {"steps": step_seconds(), **rates()}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "minimal.json").write_text(json.dumps(found, indent=1) + "\n")
    for name, value in found.items():
        if name != "environment":
            print(f"{name}: {value}")
    return 0


def latencies() -> dict[str, object]:
    """Return seconds from node to node, by form; of products by their depth."""
    node = per_node(elementwise)
    found: dict[str, object] = {
        "launch": alone(elementwise(1)) - node,
        "elementwise": node,
        "fold": per_node(fold),
        "columns": per_node(columns),
    }
    for dtype in ("f32", "bf16"):
        seconds = [per_node(product(dtype, depth), fuse="default") for depth in DEPTHS]
        found[f"product {dtype}"] = dict(zip(DEPTHS, seconds, strict=True))
    return found


def rates() -> dict[str, object]:
    """Return bytes a second of a copy, and operations a second of products by unit."""
    copied = (
        f"HloModule m\nENTRY e {{ p = f32[{COPIED}] parameter(0)\nROOT c = f32[{COPIED}] copy(p) }}"
    )
    found: dict[str, object] = {"copy": 8 * COPIED / seconds_of(copied, queued=10)}
    for dtype, side in SQUARES.items():
        for precision in ("default", "highest") if dtype == "f32" else ("default",):
            shape = f"{dtype}[{side},{side}]"
            dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
            given = f"p = {shape} parameter(0)\nq = {shape} parameter(1)"
            text = module(given, [f"d = {shape} dot(p, q), {dims}"])
            taken = seconds_of(text, queued=5, matmul_precision=precision)
            found[f"{dtype} {precision}"] = 2 * side**3 / taken
    return found


def per_node(program, fuse: str = "none") -> float:
    """Return the seconds that one more node of a chain takes."""
    short, long = (seconds_of(program(length), fuse=fuse) for length in LENGTHS)
    return (long - short) / (LENGTHS[1] - LENGTHS[0])


def alone(text: str) -> float:
    """Return what one run of a graph takes on the device."""
    import hlo2graph
    from tests.gpu.clock import DeviceClock

    clock = DeviceClock(hlo2graph.compile(text, "cuda", fuse="none"))
    return statistics.median(clock.seconds() for _ in range(QUEUED))


def elementwise(length: int) -> str:
    """Return a chain of kernels of one block, element by element."""
    lines = [f"x{k + 1} = f32[256] negate(x{k})" for k in range(length)]
    return module("x0 = f32[256] parameter(0)", lines)


def fold(length: int) -> str:
    """Return a chain of kernels that take the sum of a row from it."""
    lines = [
        f"x{k + 1} = f32[1024] fusion(x{k}), kind=kInput, calls=centred" for k in range(length)
    ]
    centred = """sum { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }
    centred { p = f32[1024] parameter(0)
      z = f32[] constant(0)
      s = f32[] reduce(p, z), dimensions={0}, to_apply=sum
      b = f32[1024] broadcast(s), dimensions={}
      ROOT d = f32[1024] subtract(p, b) }
    """
    return module("x0 = f32[1024] parameter(0)", lines, centred)


def columns(length: int) -> str:
    """Return a chain of kernels that sum the columns of a square, made anew of the sums."""
    lines = [
        f"x{k + 1} = f32[128] fusion(x{k}, q), kind=kInput, calls=summed" for k in range(length)
    ]
    summed = """sum { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }
    summed { p = f32[128] parameter(0)
      q = f32[128,128] parameter(1)
      z = f32[] constant(0)
      b = f32[128,128] broadcast(p), dimensions={1}
      m = f32[128,128] multiply(b, q)
      ROOT s = f32[128] reduce(m, z), dimensions={0}, to_apply=sum }
    """
    given = "x0 = f32[128] parameter(0)\nq = f32[128,128] parameter(1)"
    return module(given, lines, summed)


def product(dtype: str, depth: int):
    """Return what writes a chain of products of `depth` steps, each of what the last one made."""

    def write(length: int) -> str:
        lines = []
        for k in range(length):
            lines += [
                f"cut{k} = {dtype}[{SIDE},1] slice(x{k}), slice={{[0:{SIDE}], [0:1]}}",
                f"r{k} = {dtype}[{SIDE}] reshape(cut{k})",
                f"b{k} = {dtype}[{SIDE},{depth}] broadcast(r{k}), dimensions={{0}}",
                f"x{k + 1} = {dtype}[{SIDE},{SIDE}] dot(b{k}, w), lhs_contracting_dims={{1}}, "
                "rhs_contracting_dims={0}",
            ]
        given = (
            f"x0 = {dtype}[{SIDE},{SIDE}] parameter(0)\nw = {dtype}[{depth},{SIDE}] parameter(1)"
        )
        return module(given, lines)

    return write


def module(given: str, lines: list[str], computations: str = "") -> str:
    *others, last = lines
    body = "\n".join([given, *others, f"ROOT {last}"])
    return f"HloModule m\n{computations}\nENTRY e {{\n{body}\n}}\n"


def seconds_of(text: str, *, queued: int = QUEUED, **options: str) -> float:
    """Return what one call takes of many back to back; the median of REPEATS."""
    import hlo2graph

    executable = hlo2graph.compile(text, "cuda", **options)
    arguments = [np.zeros(shape, dtype) for _, dtype, shape in executable.inputs]
    own = executable.put(*arguments)
    samples = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        for _ in range(queued):
            executable(*own)
        executable.synchronize()
        samples.append((time.perf_counter() - start) / queued)
    return statistics.median(samples[1:])


if __name__ == "__main__":
    sys.exit(main())
