"""Many calls with arrays that move, under every strategy: results, memory held, nothing that grows.

    python -m tests.gpu.soak [--calls N] [--out soak.json]
    compute-sanitizer --tool memcheck --error-exitcode 9 python -m tests.gpu.soak

The calls are shared out among the strategies. Each result is held, bit for bit, against that of a
graph whose arrays never move. Device memory is read after a tenth of the calls and after all.
Exits with 1 where it grew or a result was another.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path

import hlo2graph
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.options import POINTERS
from tests.placements import PROGRAMS, Caller

PROGRAM = "donated"
SLACK = 4 << 20  # bytes that the driver may take or give back for itself


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    each = -(-given.calls // len(POINTERS))
    found = []
    for strategy in POINTERS:
        plain = hlo2graph.compile(PROGRAMS[PROGRAM], "cuda")
        moved = hlo2graph.compile(PROGRAMS[PROGRAM], "cuda", pointers=strategy)
        caller = Caller(moved, plain, seed=1)
        early = 0
        for number in range(each):
            caller.call()
            if number == each // 10:
                early = used()
        grown = used() - early
        tally = moved.strategies[0].tally
        found.append({"strategy": strategy, "calls": each, "grown": grown, "did": str(tally)})
        print(f"{strategy:10} {each:,} calls, all right; memory {grown:+,} bytes; {tally}")
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(row["grown"] > SLACK for row in found))


def used() -> int:
    """Return the bytes of device memory in use, by anybody."""
    gc.collect()
    free, total = call(cuda.cuMemGetInfo)
    return int(total) - int(free)


if __name__ == "__main__":
    sys.exit(main())
