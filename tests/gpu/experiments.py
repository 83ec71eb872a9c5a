"""Questions that only a measurement answers: what a launch costs the host, and what would help.

    python -m tests.gpu.experiments FILE... [--out DIR] [--duration S]

For each program: what the driver takes to launch its graph, beside what a call takes; the same
graph with its nodes on at most 1, 2, 4, 8 lanes (nodes of a lane follow each other: more edges,
fewer branches); "plain", without what launch_order.py adds; and "early", with light sources at the
start. --out gets experiments.json.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.addresses import Addresses
from hlo2graph.backends.cuda.driver import call, cuda, open_device
from hlo2graph.backends.cuda.functions import Functions, compile_kernels
from hlo2graph.backends.cuda.graph import GraphBuilder
from hlo2graph.backends.cuda.graph_exec import GraphExec
from hlo2graph.backends.cuda.launch_order import Weight, node_order
from hlo2graph.backends.cuda.memory import Event, Stream
from hlo2graph.backends.cuda.serial import Gate
from hlo2graph.backends.cuda.steps import KernelStep, StepSequence

LANES = (1, 2, 4, 8)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--duration", type=float, default=0.3)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = []
    try:
        launches = launch_costs()
    except Exception:
        launches = {"why": traceback.format_exc(limit=-4)}
    (given.out / "launches.json").write_text(json.dumps(launches, indent=1) + "\n")
    print("seconds a kernel launch takes the host:", launches)
    print(f"{'':42}  enqueue  device latency back to back  (us)")
    for path in given.files:
        for fuse in ("none", "default"):
            try:
                rows = examine(path, fuse, given.duration)
            except Exception:
                rows = [{"variant": "failed", "why": traceback.format_exc(limit=-4)}]
                print(rows[0]["why"])
            for row in rows:
                if "enqueue" in row:
                    figures = ("enqueue", "device", "latency", "back_to_back")
                    cells = "".join(f"{row[k] * 1e6:9.1f}" for k in figures)
                    print(f"{path.stem:22}{fuse:8}{row['variant']:12}{cells}", flush=True)
            found.append({"program": path.stem, "fuse": fuse, "variants": rows})
            (given.out / "experiments.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


@dataclass
class Variant:
    """A graph to measure, by the name of what is special about it."""

    name: str
    exec: GraphExec
    launch: object
    samples: list


C_LOOP = """
typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**);
void many(Launch launch, void* function, void* stream, void** parameters, int count) {
  for (int k = 0; k < count; ++k)
    launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0);
}
"""


def launch_costs(count: int = 400) -> dict[str, float]:
    """Return what one launch of an empty kernel costs the host: bound, by cuda.bindings, from C."""
    compiled = compile_kernels((), open_device().arch)
    functions, stream = Functions(compiled, {}), Stream()
    nothing = functions[builtin.NOTHING]
    step = KernelStep("", "", nothing, (1, 1, 1), 1, 0, ())
    bound = step.launcher(stream, Addresses(()))
    found = {
        "bound": each(lambda: [bound() for _ in range(count)], stream, count),
        "cuda.bindings": each(
            lambda: [
                cuda.cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream.handle, 0, 0)
                for _ in range(count)
            ],
            stream,
            count,
        ),
    }
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return found
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(C_LOOP)
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        loop = ctypes.CDLL(str(library)).many
        launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p)
        pointers = (int(nothing), int(stream), step.arguments.address)
        converted = [ctypes.c_void_p(p) for p in pointers]
        found["C"] = each(lambda: loop(launch, *converted, count), stream, count)
    return found


def each(run, stream, count: int) -> float:
    times = []
    for _ in range(9):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) / count)
        stream.synchronize("")
    return float(np.median(times))


def examine(path: Path, fuse: str, duration: float) -> list[dict]:
    import hlo2graph
    from tests.gpu.one import reference

    program = hlo2graph.parse(path.read_text(), path.name)
    executable = hlo2graph.compile(program, "cuda", fuse=fuse)
    args, _, _ = reference(program, path, executable)
    own = executable.put(*args)
    steps = executable.graph_steps
    variants = [made(executable, "as built", steps), made(executable, "plain", steps, Plain)]
    variants.append(made(executable, "early", steps, Early))
    variants += [made(executable, f"{k} lanes", limited(steps, k)) for k in LANES]
    stream = executable.stream
    gate, begin, end = Gate(stream), Event(timed=True), Event(timed=True)
    stop, rng = time.perf_counter() + duration * len(variants), np.random.default_rng(0)
    while time.perf_counter() < stop:
        for variant in rng.permutation(np.array(variants, object)):
            variant.samples.append(sample(variant, stream, gate, begin, end))
    rows = [
        {
            "variant": v.name,
            **dict(zip(("enqueue", "device", "latency"), medians(v.samples), strict=True)),
            "back_to_back": back_to_back(v.launch, stream),
        }
        for v in variants
    ]
    return [*rows, *call_costs(executable, own)]


def made(executable, name: str, steps: StepSequence, kind=GraphBuilder) -> Variant:
    nothing = executable._functions[builtin.NOTHING]
    builder = kind(executable.device, nothing, executable.buffers.addresses)
    graph = builder.build(steps)
    exec_ = GraphExec(graph, builder.places, executable.device)
    exec_.upload(executable.stream.handle)
    executable.synchronize()
    return Variant(name, exec_, exec_.launcher(executable.stream), [])


def limited(sequence: StepSequence, lanes: int) -> StepSequence:
    """Return the steps on at most `lanes` lanes; what is nested stays as it is."""
    tails: list[int] = []
    depth: list[int] = []
    predecessors = []
    for k, before in enumerate(sequence.predecessors):
        follows = [lane for lane, tail in enumerate(tails) if tail in before]
        if follows:
            lane = max(follows, key=lambda at: depth[tails[at]])
        elif len(tails) < lanes:
            lane = len(tails)
            tails.append(-1)
        else:
            lane = min(range(lanes), key=lambda at: depth[tails[at]])
        after = set(before) | ({tails[lane]} if tails[lane] >= 0 else set())
        depth.append(1 + max((depth[p] for p in after), default=0))
        predecessors.append(tuple(sorted(after)))
        tails[lane] = k
    return StepSequence(sequence.steps, tuple(predecessors))


class Plain(GraphBuilder):
    """Adds the plan's nodes and edges, and nothing in front."""

    def build(self, sequence, *, chain=False):
        graph = call(cuda.cuGraphCreate, 0)
        self.add(graph, sequence, (), chain=chain)
        return graph


class Early(GraphBuilder):
    """Puts light sources at the start too."""

    def build(self, sequence, *, chain=False):
        graph = call(cuda.cuGraphCreate, 0)
        found = node_order(sequence.predecessors, [Weight.KERNEL] * len(sequence.steps))
        steps = tuple(sequence.steps[k] for k in found.order)
        start = [self._start(graph)] if found.has_start else []
        self.add(graph, StepSequence(steps, found.predecessors), start, chain=False)
        return graph


def sample(variant: Variant, stream, gate: Gate, begin: Event, end: Event) -> tuple:
    start = time.perf_counter()
    variant.launch()
    enqueued = time.perf_counter()
    stream.synchronize("")
    done = time.perf_counter()
    gate.close()
    try:
        begin.record(stream.handle)
        variant.launch()
        end.record(stream.handle)
    finally:
        gate.open()
    stream.synchronize("")
    return enqueued - start, end.since(begin), done - start


def medians(samples: list) -> list[float]:
    return [float(np.median(column)) for column in zip(*samples, strict=True)]


def back_to_back(launch, stream, runs: int = 200) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        launch()
    stream.synchronize("")
    return (time.perf_counter() - start) / runs


def call_costs(executable, own, calls: int = 300) -> list[dict]:
    """Compare a call with the driver's own launch: host seconds, with the device idle before."""
    rows, handle = [], executable.graph.exec.handle
    for name, launch in (
        ("the call", lambda: executable(*own)),
        ("bound launch", executable.graph.launch),
        ("cuda.bindings", lambda: cuda.cuGraphLaunch(handle, executable.stream.handle)),
    ):
        host = []
        for _ in range(calls):
            start = time.perf_counter()
            launch()
            host.append(time.perf_counter() - start)
            executable.synchronize()
        rows.append({"variant": name, "host": float(np.median(host))})
        print(f"  {name}: {rows[-1]['host'] * 1e6:.2f} us on the host")
    return rows


if __name__ == "__main__":
    sys.exit(main())
