"""What a call costs the host before and after its launch, by the number and kind of its arguments.

python -m tests.gpu.calls

Programs of 1 to 32 arguments are called with nothing launched. `new` brings arrays of ours where
none has been before, `same` those of the call before, `sets` one of four sets in turn; `jax` and
`same jax` arrays of JAX's, through DLPack, which alone takes what `dlpack` says. A line is fitted
to each: so much a call and so much an argument.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import DeviceMemory
from hlo2graph.backends.cuda.pointers import Tally
from hlo2graph.pipeline import plan

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

    def seconds(self, sequence: Sequence[Sequence[Any]]) -> float:
        """Return the median time of calls with these arguments, one after another."""
        return median(self.executable.run, sequence)


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
    sets = [subject.arrays(CALLS + k) for k in range(SETS)]
    found = {
        "new": subject.seconds([subject.arrays(k) for k in range(CALLS)]),
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

    def fresh() -> list[list[Any]]:
        theirs = [[jax.device_put(value) for _ in range(count)] for _ in range(CALLS)]
        jax.block_until_ready(theirs)
        return theirs

    stream = int(subject.executable.stream)
    found["dlpack"] = median(lambda args: [a.__dlpack__(stream=stream) for a in args], fresh())
    found["jax"] = subject.seconds(theirs := fresh())
    found["same jax"] = subject.seconds([theirs[0]] * CALLS)
    return found


def main() -> int:
    """Measure, print the lines that fit, and write all to the file that is named."""
    rows = {count: measured(count) for count in COUNTS}
    for kind in rows[COUNTS[0]]:
        slope, start = np.polyfit(COUNTS, [rows[n][kind] * 1e6 for n in COUNTS], 1)
        each = " ".join(f"{rows[n][kind] * 1e6:.1f}" for n in COUNTS)
        print(f"{kind}: {start:.1f} us and {slope:.2f} us an argument ({each})", flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
