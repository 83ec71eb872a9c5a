"""What a call costs the host before and after its launch, by the number and kind of its arguments.

    python -m tests.gpu.calls [--out calls.json] [--counts N...] [--commit C]

Programs of 1 to 32 arguments are called with nothing launched. A line is fitted to each kind: so
much a call and so much an argument.

    new       arrays of ours where none has been before
    fresh     the same, results in memory of their own
    same      the arrays of the call before
    sets      one of four sets in turn
    jax       arrays of JAX's, which hand over what they hold through DLPack
    dlpack    what DLPack takes of that, alone
    same jax  those of the call before
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import DeviceMemory
from hlo2graph.backends.cuda.pointers import Tally
from hlo2graph.pipeline import plan
from tests.gpu.suite import describe

COUNTS = (1, 2, 4, 8, 16, 32)
CALLS, SETS, STEP, ELEMENTS = 300, 4, 256, 64


class Nothing:
    """Launches nothing."""

    name, says = "nothing", ""

    def __init__(self) -> None:
        self.tally = Tally()

    def launch(self, placement: object, stream: object) -> None:
        """Do nothing."""


def program(count: int) -> str:
    """Return the text of a program that adds so many arguments up."""
    shape = f"f32[{ELEMENTS}]"
    lines = [f"p{k} = {shape} parameter({k})" for k in range(count)]
    lines += [f"v{k} = {shape} add({f'v{k - 1}' if k else 'p0'}, p{k})" for k in range(count)]
    body = "\n  ".join([*lines, f"ROOT r = {shape} negate(v{count - 1})"])
    return f"HloModule calls\n\nENTRY main {{\n  {body}\n}}\n"


class Subject:
    """An executable that launches nothing, and arrays for it."""

    def __init__(self, count: int) -> None:
        self.executable = exe = CudaExecutable(plan(program(count), target="sm_90"))
        vars(exe)["_first"].strategy = Nothing()
        size = STEP * (CALLS + SETS + 1)
        self.blocks = [DeviceMemory(size, "allocating arrays to call with") for _ in range(count)]

    def arrays(self, number: int) -> list[DeviceArray]:
        """Return the arguments of one call."""
        exe = self.executable
        return [
            DeviceArray(block.address + STEP * number, leaf.shape, exe.device, exe.stream, block)
            for block, leaf in zip(self.blocks, exe.plan.inputs, strict=True)
        ]

    def seconds(self, sequence: Sequence[Sequence[Any]], **options: str) -> float:
        """Return the median time of calls with these arguments, one after another."""
        return median(partial(self.executable.run, **options), sequence)


def median(do: Callable[[Any], object], sequence: Sequence[Any]) -> float:
    """Return the median seconds of `do` with each of these; the first half warms up."""
    found = []
    for given in sequence:
        start = time.perf_counter()
        do(given)
        found.append(time.perf_counter() - start)
    return float(np.median(found[len(found) // 2 :]))


def measured(count: int) -> dict[str, float]:
    """Return seconds of a call with so many arguments, by their kind."""
    subject = Subject(count)
    sets = [tuple(subject.arrays(CALLS + k)) for k in range(SETS)]
    found = {
        "new": subject.seconds([tuple(subject.arrays(k)) for k in range(CALLS)]),
        "fresh": subject.seconds([tuple(subject.arrays(k)) for k in range(CALLS)], out="fresh"),
        "same": subject.seconds([sets[0]] * CALLS),
        "sets": subject.seconds([sets[k % SETS] for k in range(CALLS)]),
    }
    try:
        import jax
    except ImportError:
        return found
    if jax.default_backend() != "gpu":
        return found
    value = np.ones(ELEMENTS, np.float32)

    def fresh() -> list[tuple[Any, ...]]:
        theirs = [tuple(jax.device_put(value) for _ in range(count)) for _ in range(CALLS)]
        jax.block_until_ready(theirs)
        return theirs

    stream = int(subject.executable.stream)
    found["dlpack"] = median(lambda args: [a.__dlpack__(stream=stream) for a in args], fresh())
    found["jax"] = subject.seconds(theirs := fresh())
    found["same jax"] = subject.seconds([theirs[0]] * CALLS)
    return found


def lines(rows: dict[int, dict[str, float]]) -> Iterator[tuple[str, float, float]]:
    """Yield kinds, each with the seconds of a call and of an argument that fit it best."""
    for kind in next(iter(rows.values())):
        slope, start = np.polyfit(list(rows), [row[kind] for row in rows.values()], 1)
        yield kind, float(start), float(slope)


def main() -> int:
    """Measure, print the lines that fit, and write all to the file that is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS, metavar="N")
    parser.add_argument("--commit", help="what is measured, where git does not know")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    environment = describe(given.commit)
    rows = {count: measured(count) for count in given.counts}
    fitted = list(lines(rows))
    for kind, start, slope in fitted:
        each = " ".join(f"{row[kind] * 1e6:.1f}" for row in rows.values())
        told = f"{start * 1e6:.1f} us and {slope * 1e6:.2f} us an argument"
        print(f"{kind}: {told} ({each})", flush=True)
    if given.out is not None:
        found = {"environment": environment, "lines": fitted, "rows": rows}
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
