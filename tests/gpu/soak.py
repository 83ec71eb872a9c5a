"""Many calls with arrays that move, under every strategy: results, memory held, nothing that grows.

    python -m tests.gpu.soak [--calls N] [--seconds S] [--out soak.json]
    compute-sanitizer --tool memcheck --show-backtrace device --error-exitcode 9 \\
        python -m tests.gpu.soak

The strategies take turns, some calls each, so that all of them are there at any time. Each result
is held, bit for bit, against the host's, and arguments against what was written there. Device
memory is read after a tenth of the calls and after all. Exits with 1 where it grew, where a result
was another, or where the time was up before all calls were made. Host backtraces, which memcheck
takes otherwise, keep all that Python's frames held (held_frames.py).
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path

import hlo2graph
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.options import POINTERS
from tests.placements import PROGRAMS, Caller

PROGRAM = "donated"
TURN = 20  # calls
SLACK = 4 << 20  # bytes that the driver may take or give back for itself, for each strategy


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    reference = hlo2graph.compile(PROGRAMS[PROGRAM], "host", fuse="none")
    callers = {
        name: Caller(hlo2graph.compile(PROGRAMS[PROGRAM], "cuda", pointers=name), reference, seed=1)
        for name in POINTERS
    }
    rounds = -(-given.calls // (TURN * len(callers)))
    made = early = 0
    begun = time.monotonic()
    for number in range(rounds):
        if time.monotonic() - begun > given.seconds:
            break
        for caller in callers.values():
            for _ in range(TURN):
                caller.call()
        made = (number + 1) * TURN
        if number == rounds // 10:
            early = used()
    seconds, grown = time.monotonic() - begun, used() - early
    did = {name: str(caller.exe.strategies[0].tally) for name, caller in callers.items()}
    total = made * len(callers)
    found = {"calls": total, "asked": given.calls, "seconds": seconds, "grown": grown, "did": did}
    for name, text in did.items():
        print(f"{name:10} {made:,} calls, all right; {text}")
    print(f"{total:,} calls in {seconds:.0f} s; memory {grown:+,} bytes")
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return int(total < given.calls or grown > SLACK * len(callers))


def used() -> int:
    """Return the bytes of device memory in use, by anybody."""
    gc.collect()
    free, total = call(cuda.cuMemGetInfo)
    return int(total) - int(free)


if __name__ == "__main__":
    sys.exit(main())
