"""Run what XLA:GPU made of programs with known results, and say what holds.

    python tests/corpus_dumps.py DUMPS PROGRAMS

DUMPS holds NAME/MODE/after_optimizations.txt for programs NAME.hlo with results NAME.npz in
PROGRAMS (see corpus.py). Where the results differ and the dump lacks an element type that the
program rounds to, the program is run without that rounding too: if those are the dump's results,
XLA left it out, which is said. Exits with 1 if anything differs for another reason.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
from corpus import as_dtype, first_line, run

import hlo2graph
from hlo2graph.hlo import DTYPES, DType, Shape
from hlo2graph.inspect.compare import compare, tolerance_for


def check(dump: Path, program: Path) -> tuple[str, str]:
    """Return what is wrong with a dump's results, and the reason where it is known."""
    try:
        module = hlo2graph.parse(dump.read_text(), str(dump))
        wrong = run(module, program.with_suffix(".npz"))
    except hlo2graph.HloError as error:
        return f"unsupported: {first_line(error)}", ""
    return (wrong, reason(dump, program)) if wrong else ("", "")


def reason(dump: Path, program: Path) -> str:
    """Return the rounding that XLA has left out of a dump, if that alone makes the difference."""
    text, made = program.read_text(), dump.read_text()
    lost = [d for d in DTYPES.values() if d.is_float and has(text, d) and not has(made, d)]
    left = text
    for dtype in lost:
        if (source := rounded_from(text, dtype)) is None:
            return ""
        left = re.sub(rf"\b{dtype}\[", f"{source}[", left)
    if not lost or not same_results(made, left, program.with_suffix(".npz")):
        return ""
    names = ", ".join(map(str, lost))
    return f"XLA left out the rounding to {names}: {program.name} without it gives these results"


def has(text: str, dtype: DType) -> bool:
    return re.search(rf"\b{dtype}\[", text) is not None


def rounded_from(text: str, dtype: DType) -> DType | None:
    """Return the type of what the program converts to `dtype`, if that is one type."""
    found = set()
    for computation in hlo2graph.parse(text).computations.values():
        for instr in computation.instructions:
            if instr.opcode == "convert" and isinstance(instr.shape, Shape):
                operand = computation[instr.operands[0]].shape
                if instr.shape.dtype is dtype and isinstance(operand, Shape):
                    found.add(operand.dtype)
    return found.pop() if len(found) == 1 else None


def same_results(one: str, other: str, results: Path) -> bool:
    """Tell whether two programs give the same results for the stored inputs."""
    with np.load(results) as held:
        args = [held[f"arg{i}"] for i in range(sum(k.startswith("arg") for k in held.files))]
    found = []
    for text in (one, other):
        executable = hlo2graph.compile(text, matmul_precision="highest")
        types = (dtype for _, dtype, _ in executable.inputs)
        given = [as_dtype(a, dtype) for a, dtype in zip(args, types, strict=True)]
        found.append(executable(*given))
    return all(
        compare(a, b, tolerance_for(shape_dtype(a)), "result").ok
        for a, b in zip(*found, strict=True)
    )


def shape_dtype(array: np.ndarray) -> DType:
    return next(d for d in DTYPES.values() if d.numpy == array.dtype)


def main() -> int:
    dumps, programs = map(Path, sys.argv[1:])
    counts = {"agree": 0, "explained": 0, "differ": 0}
    for dump in sorted(dumps.glob("*/*/after_optimizations.txt")):
        name, mode = dump.parts[-3:-1]
        wrong, why = check(dump, programs / f"{name}.hlo")
        counts["explained" if why else "differ" if wrong else "agree"] += 1
        if wrong:
            print(f"  {name} {mode}: {why or wrong}", flush=True)
    total = sum(counts.values())
    print(f"{dumps}: {counts['agree']} of {total} agree, {counts['explained']} explained")
    return 1 if counts["differ"] or not total else 0


if __name__ == "__main__":
    sys.exit(main())
