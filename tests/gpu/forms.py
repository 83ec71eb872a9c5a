"""How near each kernel form comes to a copy's bandwidth, on large arrays.

    python -m tests.gpu.forms [--out FILE] [--only WORD...] [--rounds N] [--commit ID]

For each program of tests/gpu/form_programs.py, the device runs it and a device-to-device copy that
moves as many bytes, in turns. Times are the device's own, between two events around QUEUED runs
back to back. The bytes are those that any kernel has to move: each argument and result once.

    GB/s    bytes over the median time of one run
    copy    the same for the copy
    part    of the copy's bandwidth: median of the rounds' ratios, with their 10th and 90th
            percentile; `under` where it misses the program's target

--out gets it all as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.gpu.form_programs import Program, programs

QUEUED = 10
DRAWN = 1 << 20  # elements drawn; larger arrays repeat them


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=here / "results" / "forms.json")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--commit", help="what is measured, where git does not know")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="words of names")
    given = parser.parse_args()
    from hlo2graph.errors import BackendError
    from tests.gpu.suite import describe

    try:
        environment = describe(given.commit)
    except BackendError as error:
        print(f"nothing to measure on: {error}", file=sys.stderr)
        return 3
    found: list[dict] = []
    print(f"{'form':36} kernels {'us':>9} {'GB/s':>7} {'copy':>7}  part of the copy")
    for program in programs():
        if all(word in program.name for word in given.only):
            found.append(measured(program, given.rounds))
            print(line(found[-1]), flush=True)
            content = {"environment": environment, "queued": QUEUED, "forms": found}
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(content, indent=1) + "\n")
    missed = [row["form"] for row in found if row.get("under")]
    print(f"{len(missed)} of {len(found)} miss their target" + ": " * bool(missed), end="")
    print(", ".join(missed))
    return int(any("why" in row for row in found))


def measured(program: Program, rounds: int) -> dict:
    """Return the figures of one program, or why there are none."""
    row = {"form": program.name, "bytes": program.bytes, "target": program.target}
    try:
        return row | _measured(program, rounds)
    except Exception:
        return row | {"why": traceback.format_exc(limit=-3).strip()}


def _measured(program: Program, rounds: int) -> dict:
    import hlo2graph
    from hlo2graph.backends.cuda.driver import call, cuda
    from hlo2graph.backends.cuda.memory import DeviceMemory

    executable = hlo2graph.compile(program.text, "cuda")
    executable.put(*(drawn(*leaf) for leaf in executable.inputs))
    half = program.bytes // 2
    source, target = (DeviceMemory(half, "for a copy") for _ in range(2))
    stream = executable.stream

    def copy() -> None:
        call(cuda.cuMemcpyDtoDAsync, target.address, source.address, half, stream.handle)

    runs: dict[str, Callable[[], None]] = {"form": executable.graph.launch, "copy": copy}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 2):
        for name, run in runs.items():
            seconds = device_seconds(run, stream)
            if turn >= 2:
                times[name].append(seconds)
    form, copied = (np.array(times[name]) for name in ("form", "copy"))
    middle, low, high = (float(np.percentile(copied / form, q)) for q in (50, 10, 90))
    return {
        "kernels": executable.kernels,
        "nodes": executable.graph.nodes,
        "seconds": times["form"],
        "copy_seconds": times["copy"],
        "bandwidth": program.bytes / float(np.median(form)),
        "copy_bandwidth": 2 * half / float(np.median(copied)),
        "part": [middle, low, high],
        "under": program.target is not None and middle < program.target,
    }


def device_seconds(run: Callable[[], None], stream) -> float:
    """Return the device's time for one run, as the mean of several back to back."""
    from hlo2graph.backends.cuda.memory import Event

    begin, end = Event(timed=True), Event(timed=True)
    begin.record(stream.handle)
    for _ in range(QUEUED):
        run()
    end.record(stream.handle)
    end.synchronize()
    return end.since(begin) / QUEUED


def drawn(name: str, dtype: np.dtype, dims: tuple[int, ...]) -> np.ndarray:
    """Return random values; of a large array a part is drawn and then repeated.

    Indices, the arguments of name i.N, lie anywhere in N rows.
    """
    rng = np.random.default_rng(0)
    count = int(np.prod(dims))
    if name.startswith("i."):
        return rng.integers(0, int(name[2:]), dims, dtype)
    few = min(count, DRAWN)
    values = rng.integers(0, 100, few) if dtype.kind in "biu" else rng.standard_normal(few)
    return np.resize(values.astype(dtype), dims)


def line(row: dict) -> str:
    if "why" in row:
        return f"{row['form']:36} {row['why'].splitlines()[-1][:120]}"
    middle, low, high = row["part"]
    under = f"  under {row['target']:.2f}" if row["under"] else ""
    return (
        f"{row['form']:36} {row['kernels']:7} {np.median(row['seconds']) * 1e6:9.1f} "
        f"{row['bandwidth'] / 1e9:7.0f} {row['copy_bandwidth'] / 1e9:7.0f}  "
        f"{middle:.2f} ({low:.2f} to {high:.2f}){under}"
    )


if __name__ == "__main__":
    sys.exit(main())
