"""hlo2graph beside XLA in one process, program by program.

    python -m tests.gpu.bench [DIR...] [--out DIR] [--rounds N] [--only NAME...]

Each DIR holds NAME.hlo files. Needs jax for CUDA. XLA runs as it comes, and with command buffers
for all that it can put into one (smallest graph 1), scheduled by LHS and by CONCURRENT. All take
turns, round by round, on device-resident arguments:

    latency     call, and wait until its results are there; median
    throughput  100 calls, one wait; per call, median
    compile     seconds from text to something to call, once
    memory      bytes on the device: arguments, results, temporaries, constants

--out gets bench.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path

import numpy as np

ALL = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,WHILE,CONDITIONAL,COLLECTIVES,DYNAMIC_SLICE_FUSION"
XLA = {
    "xla": [],
    **{
        f"xla {mode}": [
            ("xla_gpu_enable_command_buffer", ALL),
            ("xla_gpu_command_buffer_scheduling_mode", mode),
            ("xla_gpu_graph_min_graph_size", "1"),
        ]
        for mode in ("LHS", "CONCURRENT")
    },
}
OURS = {"hlo2graph": {}, "hlo2graph none": {"fuse": "none"}}
QUEUED = 100


class OurCall:
    """hlo2graph on arguments that lie in its own buffers."""

    def __init__(self, text: str, args: list, options: dict) -> None:
        import hlo2graph

        start = time.perf_counter()
        self.executable = hlo2graph.compile(text, "cuda", **options)
        self.compile = time.perf_counter() - start
        self.memory = self.executable.memory.total
        self.own = self.executable.put(*args)

    def call(self) -> None:
        self.executable(*self.own)

    def wait(self) -> None:
        self.executable.synchronize()

    def results(self) -> list:
        return [np.asarray(a) for a in self.executable.device_outputs]


class XlaCall:
    """XLA through jaxlib, on arguments that jax put on the device."""

    def __init__(self, text: str, args: list, overrides: list) -> None:
        import jax
        from jax._src.lib import xla_client
        from jaxlib._jax import DeviceList

        self.jax = jax
        device = jax.devices("gpu")[0]
        start = time.perf_counter()
        proto = xla_client.hlo.hlo_module_from_text(text)
        computation = xla_client.XlaComputation(proto.as_serialized_hlo_module_proto())
        options = xla_client.CompileOptions()
        options.env_option_overrides = overrides
        shapes = computation.program_shape().parameter_shapes()
        options.parameter_is_tupled_arguments = len(shapes) == 1 and shapes[0].is_tuple()
        mlir = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
        self.executable = device.client.compile_and_load(mlir, DeviceList((device,)), options)
        self.compile = time.perf_counter() - start
        stats = self.executable.get_compiled_memory_stats()
        self.memory = (
            stats.argument_size_in_bytes
            + stats.output_size_in_bytes
            + stats.temp_size_in_bytes
            - stats.alias_size_in_bytes
        )
        self.placed = [jax.device_put(a, device) for a in args]
        self.outs: list = []

    def call(self) -> None:
        self.outs = self.executable.execute(self.placed)

    def wait(self) -> None:
        self.jax.block_until_ready(self.outs)

    def results(self) -> list:
        return [np.asarray(a) for a in self.outs]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).parent
    parser.add_argument("folders", nargs="*", type=Path, default=[here.parent.parent / "samples"])
    parser.add_argument("--out", type=Path, default=here / "results")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--commit", help="what is measured, where git does not know")
    parser.add_argument("--only", nargs="*", metavar="NAME")
    given = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from hlo2graph.errors import BackendError
    from tests.gpu.suite import describe

    jax.config.update("jax_enable_x64", True)
    try:
        environment = describe(given.commit) | {"jax": jax.__version__}
        jax.devices("gpu")
    except (BackendError, RuntimeError) as error:
        print(f"nothing to measure on: {error}", file=sys.stderr)
        return 3
    given.out.mkdir(parents=True, exist_ok=True)
    paths = [p for folder in given.folders for p in sorted(folder.glob("*.hlo"))]
    if given.only:
        paths = [p for p in paths if p.stem in given.only]
    found = []
    print(f"microseconds: latency / throughput{'':4}", *(f"{n:>20}" for n in (*OURS, *XLA)), sep="")
    for path in paths:
        rows = compare(path, given.rounds)
        found.append({"program": path.stem, "runs": rows})
        cells = "".join(f"{cell(rows[name]):>20}" for name in (*OURS, *XLA))
        print(f"{path.stem[:38]:38}{cells}", flush=True)
        content = {"environment": environment, "programs": found}
        (given.out / "bench.json").write_text(json.dumps(content, indent=1) + "\n")
    for path_result in found:
        for name, row in path_result["runs"].items():
            if "why" in row:
                print(f"{path_result['program']}, {name}: {row['why'].splitlines()[-1][:200]}")
    return 0


def cell(row: dict) -> str:
    if "latency" not in row:
        return "-"
    return f"{row['latency'] * 1e6:.1f} / {row['throughput'] * 1e6:.1f}"


def compare(path: Path, rounds: int) -> dict[str, dict]:
    """Build every contender, then let them take turns."""
    text = path.read_text()
    args = arguments(path, text)
    rows: dict[str, dict] = {}
    calls = {}
    for name, make in (
        *((n, lambda o=o: OurCall(text, args, o)) for n, o in OURS.items()),
        *((n, lambda o=o: XlaCall(text, args, o)) for n, o in XLA.items()),
    ):
        try:
            found = make()
            for _ in range(5):
                found.call()
                found.wait()
            calls[name] = found
            rows[name] = {"compile": found.compile, "memory": found.memory}
        except Exception:
            rows[name] = {"why": traceback.format_exc(limit=-3).strip()}
    samples: dict[str, tuple[list, list]] = {name: ([], []) for name in calls}
    rng = np.random.default_rng(0)
    for turn in range(rounds):
        for name in map(str, rng.permutation(list(calls))):  # what ran before helps or harms
            samples[name][0].append(latency(calls[name]))
            if turn % 10 == 0:
                samples[name][1].append(throughput(calls[name]))
    for name, (single, queued) in samples.items():
        low, high = np.percentile(single, (10, 90))
        rows[name] |= {
            "latency": float(np.median(single)),
            "p10": float(low),
            "p90": float(high),
            "throughput": float(np.median(queued)),
        }
    agreement(rows, calls)
    return rows


def arguments(path: Path, text: str) -> list:
    """Return the stored arguments, else random ones."""
    import hlo2graph
    from hlo2graph.inspect.arrays import random_inputs
    from tests.corpus import as_dtype

    inputs = hlo2graph.plan(text, target="host").inputs
    stored = path.with_suffix(".npz")
    if not stored.exists():
        return random_inputs(inputs, 0)
    with np.load(stored) as held:
        return [as_dtype(held[f"arg{i}"], b.shape.dtype.numpy) for i, b in enumerate(inputs)]


def agreement(rows: dict[str, dict], calls: dict) -> None:
    """Note the largest relative difference from XLA's results."""
    if "xla" not in calls:
        return
    want = calls["xla"].results()
    for name, found in calls.items():
        worst = 0.0
        for got, expected in zip(found.results(), want, strict=True):
            if got.dtype.kind not in "biu" and got.size:
                a, b = got.astype(np.complex128), expected.astype(np.complex128)
                with np.errstate(all="ignore"):
                    scale = np.nanmax(np.abs(b)) or 1.0
                    worst = max(worst, float(np.nanmax(np.abs(a - b)) / scale))
        rows[name]["difference"] = worst


def latency(found: OurCall | XlaCall) -> float:
    start = time.perf_counter()
    found.call()
    found.wait()
    return time.perf_counter() - start


def throughput(found: OurCall | XlaCall) -> float:
    start = time.perf_counter()
    for _ in range(QUEUED):
        found.call()
    found.wait()
    return (time.perf_counter() - start) / QUEUED


if __name__ == "__main__":
    sys.exit(main())
