"""One program on the GPU, checked, timed or only run, in a process of its own: a JSON line.

    python -m tests.gpu.one check|time|plain FILE [--fuse F] [--precision P] [--unroll U]

FILE is NAME.hlo, beside it perhaps a NAME.npz of arg0.. and out0... Whatever goes wrong with the
program is part of the answer; suite.py asks many times.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from pathlib import Path


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("check", "time", "plain"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--fuse", default="default")
    parser.add_argument("--precision", default="default")
    parser.add_argument("--unroll", default="auto")
    parser.add_argument("--duration", type=float, default=0.15, help="seconds to time it for")
    print(json.dumps(one(parser.parse_args(args))))


def one(given: argparse.Namespace) -> dict:
    """Check or time one program; whatever goes wrong is a result."""
    import hlo2graph
    from hlo2graph.errors import BackendError, UnsupportedError

    path = given.file
    try:
        program = hlo2graph.parse(path.read_text(), path.name)
        executable = hlo2graph.compile(
            program,
            "cuda",
            given.precision,
            fuse=given.fuse,
            unroll_loops=given.unroll,
        )
        work = {"check": check, "time": measured, "plain": plain}[given.kind]
        return work(program, path, executable, given)
    except UnsupportedError as error:
        return {"status": "refused", "why": str(error)}
    except hlo2graph.HloError as error:  # what has known results must run
        known = path.with_suffix(".npz").exists()
        return {"status": "error" if known else "refused", "why": str(error)}
    except BackendError as error:
        return {"status": "error", "why": str(error)}
    except Exception:
        return {"status": "exception", "why": traceback.format_exc(limit=-6)}


def check(program, path: Path, executable, given: argparse.Namespace) -> dict:
    """Hold the graph against itself, the serial stream, the chain, and a reference."""
    from hlo2graph.inspect.arrays import random_inputs
    from hlo2graph.inspect.compare import same_bits
    from hlo2graph.inspect.device_check import check_device, poisoned_run

    args, want, against = reference(program, path, executable)
    others = random_inputs(executable.plan.inputs, 1)
    results, checks = check_device(executable, args, others)
    wrong = [f"{c.how}: other bits than {c.against}" for c in checks if not c.ok]
    if not same_bits(poisoned_run(executable, "chain", args), results):
        wrong.append("chain: other bits than the graph")
    wrong += differences(program, executable, results, want, against)
    wrong += device_arrays(executable, args, results)
    return {
        "status": "wrong" if wrong else "ok",
        "why": "; ".join(wrong),
        "against": against,
        "nodes": executable.graph.nodes,
        "kernels": executable.kernels,
        "stages": dict(executable.stages),
        "notes": executable.notes,
    }


def plain(program, path: Path, executable, given: argparse.Namespace) -> dict:
    """Run once on the serial stream and once as a graph; nothing is poisoned."""
    args, _, _ = reference(program, path, executable)
    for mode in ("serial", "graph"):
        executable.write_inputs(args)
        executable.execute(mode)
    executable.read_outputs()
    return {"status": "ok"}


def reference(program, path: Path, executable) -> tuple[list, list, str]:
    """Return arguments, results to expect, and where those come from."""
    import numpy as np

    from hlo2graph.inspect.arrays import random_inputs
    from hlo2graph.inspect.reference import host_results
    from hlo2graph.passes.sizes.settle_sizes import settle_sizes
    from tests.corpus import as_dtype

    stored = path.with_suffix(".npz")
    if not stored.exists():
        args = random_inputs(executable.plan.inputs, 0)
        return args, list(host_results(settle_sizes(program), args)), "host"
    with np.load(stored) as held:
        args, want = (
            [held[f"{key}{i}"] for i in range(sum(name.startswith(key) for name in held.files))]
            for key in ("arg", "out")
        )
    args = [as_dtype(a, dtype) for a, (_, dtype, _) in zip(args, executable.inputs, strict=True)]
    want = [as_dtype(w, dtype) for w, (_, dtype, _) in zip(want, executable.outputs, strict=True)]
    return args, want, stored.name


def differences(program, executable, results, want, against: str) -> list[str]:
    """Return what differs from the reference by more than the tolerances."""
    from hlo2graph.inspect.compare import compare, tolerance_for
    from hlo2graph.inspect.narrowed import narrowed_tolerances
    from hlo2graph.inspect.reference import pinned_results
    from hlo2graph.passes.sizes.settle_sizes import settle_sizes
    from tests.corpus import scaled

    found = []
    bounds = executable.plan.outputs
    own = [tolerance_for(bound.shape.dtype, tf32=executable.tf32) for bound in bounds]
    tolerances = narrowed_tolerances(settle_sizes(program), own)
    rows = zip(bounds, results, want, tolerances, pinned_results(program), strict=True)
    for bound, got, expected, tolerance, is_pinned in rows:
        if is_pinned:
            comparison = compare(got, expected, scaled(tolerance, expected), bound.name)
            if not comparison.ok:
                found.append(f"not {against}: {comparison}")
    return found


def device_arrays(executable, args, results) -> list[str]:
    """Call with device arrays; compare with the results."""
    import numpy as np

    from hlo2graph.inspect.compare import same_bits

    own = executable.put(*args)
    got = tuple(np.asarray(a) for a in executable(*own))
    wrong = [] if same_bits(got, results) else ["a call with device arrays gave other bits"]
    plain = executable(*args)
    if not same_bits(plain, results):
        wrong.append("a call with NumPy arrays gave other bits")
    return wrong


def measured(program, path: Path, executable, given: argparse.Namespace) -> dict:
    """Time the three modes and a call on device arrays."""
    from hlo2graph.inspect.cuda_runner import CudaRunner
    from hlo2graph.inspect.timing import Budget, measure, paired_ratio
    from hlo2graph.inspect.verdict import cuda_verdict
    from hlo2graph.program.stats import plan_stats

    args, _, _ = reference(program, path, executable)
    runner = CudaRunner(executable, args)
    found = measure(runner, Budget(warmup=0.1, duration=given.duration))
    stats = plan_stats(executable.plan)
    modes = {}
    for timing, ratio in zip(found.modes, found.ratios, strict=True):
        modes[timing.mode.name] = {
            "enqueue": timing.enqueue,
            "device": timing.device,
            "latency": timing.median,
            "p90": timing.percentile(90),
            "p99": timing.percentile(99),
            "spread": timing.spread,
            "back_to_back": runner.throughput(timing.mode),
            "ratio": [ratio.value, ratio.low, ratio.high],
        }
    best = min((found["serial"], found["chain"]), key=lambda m: m.median)
    beside = paired_ratio(best.latencies, found["graph"].latencies)
    stages = dict(executable.stages)
    built = sum(stages[name] for name in ("build", "instantiate", "upload"))
    return {
        "status": "ok",
        "rounds": found.rounds,
        "doubts": found.doubts,
        "modes": modes,
        "beside_best": [best.mode.name, beside.value, beside.low, beside.high],
        "call": call_cost(executable, args),
        "nodes": executable.graph.nodes,
        "edges": executable.graph.edges,
        "width": stats.width,
        "critical_path": stats.critical_path,
        "arena_bytes": stats.arena_bytes,
        "unrolled": executable.unrolled,
        "stages": stages,
        "verdict": cuda_verdict(found, built, stats, executable.serial.is_steered),
        "profile": profiled(executable, args),
    }


def profiled(executable, args) -> dict:
    """Return when each node ran; a profile that fails spoils no timing."""
    from hlo2graph.inspect.profile import profile, profile_json

    try:
        return profile_json(profile(executable, args))
    except Exception:
        return {"why": traceback.format_exc(limit=-4)}


def call_cost(executable, args, calls: int = 200) -> dict:
    """Return what a call on own device arrays costs the host, and with its completion."""
    own = executable.put(*args)
    executable(*own)
    executable.synchronize()
    host = []
    for _ in range(calls):
        start = time.perf_counter()
        executable(*own)
        host.append(time.perf_counter() - start)
        executable.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        executable(*own)
    executable.synchronize()
    spent = time.perf_counter() - start
    return {"host": sorted(host)[calls // 2], "back_to_back": spent / calls}


if __name__ == "__main__":
    main()
