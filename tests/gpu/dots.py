"""Our own dot kernels beside cuBLASLt's, shape by shape: where ops/own_dot.py should draw the line.

    python -m tests.gpu.dots [--out FILE] [--rounds N] [--only WORD...]

Each program is CHAIN products of the same operands, one after the other in one graph, once with
cuBLASLt and once with kernels of ours; the time is that of one product, launch included. `rule`
says who multiplies by the rule, and `costs` how much longer that takes where the other is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

CHAIN = 16
SHAPES = (  # batch, rows, columns, steps
    *((1, m, n, k) for m in (1, 4, 8, 16, 32) for n, k in ((256, 1024), (1024, 256), (4096, 4096))),
    *((1, n, n, n) for n in (64, 128, 192, 256, 384, 512, 768, 1024)),
    *((1, 128, 1024, 256), (1, 128, 256, 1024), (1, 512, 512, 64), (1, 2048, 2048, 64)),
    *((8, 128, 128, 32), (8, 128, 32, 128), (16, 512, 512, 64), (16, 512, 64, 512)),
    *((1, 64, 64, 2048), (1, 64, 64, 4096), (1, 100, 300, 500), (4, 37, 45, 1000)),
)
DTYPES = ("f32", "bf16", "f16")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=here / "results" / "dots.json")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="words of names")
    given = parser.parse_args()
    from hlo2graph.errors import BackendError
    from tests.gpu.suite import describe

    try:
        environment = describe(None)
    except BackendError as error:
        print(f"nothing to measure on: {error}", file=sys.stderr)
        return 3
    found = []
    print(f"{'product':28} {'cuBLASLt':>9} {'ours':>9}  ours/cuBLASLt  rule")
    for name, shape, dtype in products():
        if all(word in name for word in given.only):
            found.append(measured(name, shape, dtype, given.rounds))
            print(line(found[-1]), flush=True)
            content = {"environment": environment, "chain": CHAIN, "products": found}
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def products() -> Iterator[tuple[str, tuple[int, int, int, int], str]]:
    """Yield name, shape and element type of each."""
    for dtype in DTYPES:
        for b, m, n, k in SHAPES:
            yield f"{dtype} {b}x{m}x{n}x{k}", (b, m, n, k), dtype


def program(shape: tuple[int, int, int, int], dtype: str) -> str:
    """Return a module of CHAIN equal products."""
    b, m, n, k = shape
    lhs, rhs, out = f"{dtype}[{b},{m},{k}]", f"{dtype}[{b},{k},{n}]", f"{dtype}[{b},{m},{n}]"
    attrs = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    attrs += "rhs_contracting_dims={1}"
    lines = [f"a = {lhs} parameter(0)", f"b = {rhs} parameter(1)"]
    lines += [f"d{i} = {out} dot(a, b), {attrs}" for i in range(CHAIN)]
    names = ", ".join(f"d{i}" for i in range(CHAIN))
    lines.append(f"ROOT t = ({', '.join([out] * CHAIN)}) tuple({names})")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def measured(name: str, shape: tuple[int, int, int, int], dtype: str, rounds: int) -> dict:
    """Return the microseconds of one product both ways, and who the rule would have multiply."""
    import hlo2graph
    from hlo2graph.backends.cuda import products as libraries
    from hlo2graph.ops.own_dot import runs_as_own_kernel
    from tests.gpu.forms import device_seconds, drawn

    text = program(shape, dtype)
    module = hlo2graph.parse(text)
    dot = next(i for i in module.entry.instructions if i.opcode == "dot")
    lhs, rhs = (module.entry[o].shape for o in dot.operands)
    plan = hlo2graph.plan(module, target="sm_90", fuse="none", schedule="serialize")
    runs = {"library": hlo2graph.compile(plan, "cuda")}
    with mock.patch.object(libraries, "library", return_value=None):
        runs["ours"] = hlo2graph.compile(plan, "cuda")
    times: dict[str, list[float]] = {key: [] for key in runs}
    for executable in runs.values():
        executable.put(*(drawn(*leaf) for leaf in executable.inputs))
    for turn in range(rounds + 2):
        for key, executable in runs.items():
            seconds = device_seconds(executable.graph.launch, executable.stream)
            if turn >= 2:
                times[key].append(seconds / CHAIN * 1e6)
    return {
        "product": name,
        "library": float(np.median(times["library"])),
        "ours": float(np.median(times["ours"])),
        "rule": "ours" if runs_as_own_kernel(dot, lhs, rhs) else "library",
    }


def line(row: dict) -> str:
    chosen, best = row[row["rule"]], min(row["library"], row["ours"])
    costs = f", costs {chosen / best:.2f}" if chosen > 1.05 * best else ""
    return (
        f"{row['product']:28} {row['library']:9.2f} {row['ours']:9.2f}  "
        f"{row['ours'] / row['library']:13.2f}  {row['rule']}{costs}"
    )


if __name__ == "__main__":
    sys.exit(main())
