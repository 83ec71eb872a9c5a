"""How near each kernel form comes to a copy's bandwidth, on large arrays.

    python -m tests.gpu.forms [--out FILE] [--only WORD...] [--rounds N] [--commit ID]
                              [--within SECONDS]

For each program of tests/gpu/form_programs.py, the device runs it and a device-to-device copy that
moves as many bytes, in turns. Times are the device's own, between two events around QUEUED runs
back to back. The bytes are those that any kernel has to move: each argument and result once.

    GB/s    bytes over the median time of one run
    copy    the same for the copy
    part    of the copy's bandwidth: median of the rounds' ratios, with their 10th and 90th
            percentile; `under` where it misses the program's target

--out gets it all as JSON; of forms that are not measured now it keeps what it has, with the commit
that was measured. With --within, forms are taken until that time is over: those that were never
measured first, then those under their target, then those of earlier commits.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import hlo2graph
from tests.gpu.form_programs import Program, programs

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.executable import CudaExecutable

QUEUED = 10
DRAWN = 1 << 20  # elements drawn; larger arrays repeat them
ROOM = 8  # times a program's bytes that are to be free for the next ones
TOGETHER = 4  # programs a processor that are compiled at once


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=here / "results" / "forms.json")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--commit", help="what is measured, where git does not know")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="words of names")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="the stalest first")
    given = parser.parse_args()
    from hlo2graph.errors import BackendError
    from tests.gpu.suite import describe

    end = None if given.within is None else time.monotonic() + given.within
    try:
        environment = describe(given.commit)
    except BackendError as error:
        print(f"nothing to measure on: {error}", file=sys.stderr)
        return 3
    every = [program.name for program in programs()]
    known = kept(given.out, environment["commit"])
    chosen = [p for p in programs() if all(word in p.name for word in given.only)]
    if end is not None:
        chosen.sort(key=lambda program: urgency(known.get(program.name)))
    found: dict[str, dict] = {}
    print(f"{'form':36} kernels {'us':>9} {'GB/s':>7} {'copy':>7}  part of the copy")
    for program, build in built(chosen, environment["arch"]):
        if end is not None and time.monotonic() > end:
            break
        found[program.name] = measured(program, build, given.rounds)
        print(line(found[program.name]), flush=True)
        rows = known | found
        content = {"environment": environment, "queued": QUEUED}
        content["forms"] = [rows[name] for name in every if name in rows]
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(content, indent=1) + "\n")
    missed = [name for name, row in found.items() if row.get("under")]
    print(f"{len(missed)} of {len(found)} miss their target" + ": " * bool(missed), end="")
    print(", ".join(missed))
    return int(any("why" in row for row in found.values()))


def kept(path: Path, commit: str | None) -> dict[str, dict]:
    """Return the rows of an earlier run by form; `earlier` says which commit they are of."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    before = content["environment"]["commit"]
    rows = {row["form"]: row for row in content["forms"] if "why" not in row}
    if before != commit:
        for row in rows.values():
            row.setdefault("earlier", before)
    return rows


def urgency(row: dict | None) -> tuple[bool, bool, bool]:
    """Return what to sort by: false before true."""
    return row is not None, not (row or {}).get("under"), "earlier" not in (row or {})


Build = Callable[[], "CudaExecutable"]


def built(chosen: Sequence[Program], arch: str) -> Iterator[tuple[Program, Build]]:
    """Yield each program with what makes it ready to run.

    Many are compiled at once, and none while one is measured.
    """
    from hlo2graph.backends.cuda.executable import CudaExecutable
    from hlo2graph.backends.cuda.prepared import prepared

    def compiled(program: Program):
        plan = hlo2graph.plan(program.text, target=arch)
        return plan, prepared(plan, arch, precise=False, table=False)

    def build(future: Future) -> CudaExecutable:
        plan, kernels = future.result()
        return CudaExecutable(plan, kernels=kernels)

    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(chosen), TOGETHER * workers):
            several = chosen[start : start + TOGETHER * workers]
            begun = [pool.submit(compiled, program) for program in several]
            wait(begun)
            for program, future in zip(several, begun, strict=True):
                yield program, partial(build, future)


def measured(program: Program, build: Build, rounds: int) -> dict:
    """Return the figures of one program, or why there are none."""
    row = {"form": program.name, "bytes": program.bytes, "target": program.target}
    try:
        return row | _measured(program, build, rounds)
    except Exception:
        return row | {"why": traceback.format_exc(limit=-3).strip()}


def _measured(program: Program, build: Build, rounds: int) -> dict:
    executable = build()  # before the driver is asked for: tests put another one in its place
    from hlo2graph.backends.cuda.driver import call, cuda
    from hlo2graph.backends.cuda.memory import DeviceMemory, free_bytes

    if free_bytes() < ROOM * program.bytes:
        gc.collect()  # executables of programs before this one
    fill(executable)
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


def fill(executable: CudaExecutable) -> None:
    """Write random values to all inputs: what is drawn, over and over."""
    from hlo2graph.backends.cuda.driver import call, cuda

    stream = executable.stream.handle
    for leaf, array in zip(executable.inputs, executable.device_inputs, strict=True):
        values, at = some(*leaf), array.address
        done, size = values.nbytes, array.layout.size
        call(cuda.cuMemcpyHtoDAsync, at, values.ctypes.data, done, stream)
        while done < size:
            part = min(done, size - done)
            call(cuda.cuMemcpyDtoDAsync, at + done, at, part, stream)
            done += part
    executable.synchronize()


def drawn(name: str, dtype: np.dtype, dims: tuple[int, ...]) -> np.ndarray:
    """Return random values; of a large array a part is drawn and then repeated."""
    return np.resize(some(name, dtype, dims), dims)


def some(name: str, dtype: np.dtype, dims: tuple[int, ...]) -> np.ndarray:
    """Return the values that an array begins with, all or as many as are drawn.

    Indices, the arguments of name i.N, lie anywhere in N rows.
    """
    rng = np.random.default_rng(0)
    count = int(np.prod(dims))
    if name.startswith("i."):
        return rng.integers(0, int(name[2:]), count, dtype)
    few = min(count, DRAWN)
    values = rng.integers(0, 100, few) if dtype.kind in "biu" else rng.standard_normal(few)
    return values.astype(dtype)


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
