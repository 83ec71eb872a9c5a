"""Time a call takes, by strategy for arrays that move and by how they move.

    python -m tests.gpu.pointers mlp.hlo lstm_scan.hlo --out pointers.json

`stay` brings the same arrays at each call, `rotate` brings one of a few sets, `new` brings arrays
where none has been before. Strategies take turns call by call, so that all meet the same machine.
`enqueue` is the host's time until the call returns, `latency` until its results are there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hlo2graph
from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.backends.cuda.memory import DeviceMemory
from hlo2graph.inspect.compare import same_bits
from hlo2graph.options import POINTERS
from tests.gpu.suite import reference

PATTERNS = "stay", "rotate", "new"
STEP = 256  # bytes by which an array that is new lies behind the one before


@dataclass
class Caller:
    """One strategy's executable, and its times by pattern."""

    name: str
    executable: object
    enqueue: dict = field(default_factory=lambda: {p: [] for p in PATTERNS})
    latency: dict = field(default_factory=lambda: {p: [] for p in PATTERNS})
    so_far: dict = field(default_factory=dict)  # what its strategy counted up to a pattern's end

    def call(self, pattern: str, args: list, want: list) -> None:
        exe = self.executable
        start = time.perf_counter()
        results = exe(*args)
        enqueued = time.perf_counter()
        exe.stream.synchronize("timing a call")
        self.latency[pattern].append(time.perf_counter() - start)
        self.enqueue[pattern].append(enqueued - start)
        if want is not None:
            found = [np.asarray(r) for r in results]
            assert same_bits(found, want), f"{self.name}, {pattern}: other results"


class Arrays:
    """Sets of arguments: `sets` that stay, and a slab in which each new one lies elsewhere."""

    def __init__(self, executable, args: list, sets: int, calls: int) -> None:
        self.executable, self.args = executable, args
        leaves = executable.plan.inputs
        self.sizes = [-(-leaf.slice.size // STEP) * STEP for leaf in leaves]
        self.sets = [self.fresh() for _ in range(sets)]
        self.slabs = [DeviceMemory(s + STEP * (calls + 1), "for a slab") for s in self.sizes]
        self.shift = 0

    def fresh(self) -> list:
        blocks = [DeviceMemory(size, "for an array") for size in self.sizes]
        return [self.array(k, block, block.address) for k, block in enumerate(blocks)]

    def array(self, k: int, block: DeviceMemory, address: int) -> DeviceArray:
        exe = self.executable
        leaf, own = exe.plan.inputs[k], exe.memory.address(exe.plan.inputs[k].slice)
        if leaf.slice.size:
            call(cuda.cuMemcpyDtoDAsync, address, own, leaf.slice.size, exe.stream.handle)
        return DeviceArray(address, leaf.shape, exe.device, exe.stream, block)

    def bring(self, pattern: str, number: int) -> list:
        """Return arguments; what the last call overwrote is written again."""
        self.executable.write_inputs(self.args)
        match pattern:
            case "stay":
                found = self.sets[0]
            case "rotate":
                found = self.sets[number % len(self.sets)]
            case _:
                self.shift += STEP
                found = [
                    self.array(k, slab, slab.address + self.shift)
                    for k, slab in enumerate(self.slabs)
                ]
        self.executable.synchronize()
        return found


def measure(path: Path, names: list[str], sets: int, calls: int) -> dict:
    module = hlo2graph.parse(path.read_text(), path.name)
    callers = [Caller(n, hlo2graph.compile(module, "cuda", pointers=n)) for n in names]
    args, _, _ = reference(module, path, callers[0].executable)
    for caller in callers:
        caller.executable.write_inputs(args)
    want = hlo2graph.compile(module, "cuda")(*args)
    arrays = [Arrays(c.executable, args, sets, calls) for c in callers]
    for pattern in PATTERNS:
        for number in range(calls):
            for caller, own in zip(callers, arrays, strict=True):
                brought = own.bring(pattern, number)
                caller.call(pattern, brought, want if number % 10 == 0 else None)
        for caller in callers:
            caller.so_far[pattern] = [s.says for s in caller.executable.strategies]
    return {
        "program": path.stem,
        "inputs": len(args),
        "nodes": callers[0].executable.graph.nodes,
        "ports": len(callers[0].executable.ports),
        "rows": [row(c, pattern, calls, callers) for pattern in PATTERNS for c in callers],
    }


def row(caller: Caller, pattern: str, calls: int, callers: list[Caller]) -> dict:
    warm = calls // 4
    enqueue, latency = caller.enqueue[pattern][warm:], caller.latency[pattern][warm:]
    best = min(callers, key=lambda c: float(np.median(c.latency[pattern][warm:])))
    ratio = np.asarray(latency) / np.asarray(best.latency[pattern][warm:])
    draws = np.random.default_rng(0).integers(0, len(ratio), (1000, len(ratio)))
    low, high = np.percentile(np.median(ratio[draws], axis=1), (2.5, 97.5))
    return {
        "strategy": caller.name,
        "pattern": pattern,
        "enqueue_us": float(np.median(enqueue)) * 1e6,
        "latency_us": float(np.median(latency)) * 1e6,
        "over_best": float(np.median(ratio)),
        "over_best_95": [float(low), float(high)],
        "so_far": caller.so_far[pattern],
        "notes": sorted({note for s in caller.executable.strategies for note in s.tally.notes}),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sets", type=int, default=4)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--strategies", default=",".join(POINTERS))
    given = parser.parse_args()
    found = []
    for path in given.files:
        found.append(measure(path, given.strategies.split(","), given.sets, given.calls))
        print(f"{path.stem}: {found[-1]['nodes']} nodes, {found[-1]['inputs']} inputs")
        for r in found[-1]["rows"]:
            low, high = r["over_best_95"]
            print(
                f"  {r['pattern']:7} {r['strategy']:10} {r['enqueue_us']:9.1f} us enqueue "
                f"{r['latency_us']:9.1f} us latency  {r['over_best']:.2f}x ({low:.2f}-{high:.2f})"
                f"  {r['so_far'][0]}"
            )
        if given.out is not None:
            given.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
