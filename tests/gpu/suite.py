"""Everything that only a GPU can show, in one go: correctness, timings, what a call costs.

    python -m tests.gpu.suite [DIR...] --out DIR [--time FILE...] [--jobs N] [--seconds S]
    python -m tests.gpu.suite [DIR...] --out DIR --sanitizer memcheck|initcheck|racecheck

Each DIR holds NAME.hlo files, for each perhaps a NAME.npz of arg0.. and out0.. Every program runs
in a process of its own, so that a crash, a hang or a broken context is one failure. --out gets
correctness.json, timings.json and environment.json; with --sanitizer, every program runs once under
that tool of compute-sanitizer instead, into TOOL.json. Exits with 1 if a check fails, with 3 where
there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
SAMPLES = REPOSITORY / "samples"
CASES = (("default", "default"), ("default", "highest"), ("none", "highest"))  # fuse, precision
NO_BACKEND = 3


def main() -> int:
    given = arguments()
    if given.one:
        print(json.dumps(one(given)))
        return 0
    try:
        environment = describe(given.commit)
    except Exception as error:
        print(f"no GPU to test on: {error}", file=sys.stderr)
        return NO_BACKEND
    given.out.mkdir(parents=True, exist_ok=True)
    write(given.out / "environment.json", environment)
    print(json.dumps(environment))
    failed = given.tests and unit_tests()
    folders = given.folders or [SAMPLES]
    paths = [p for folder in folders for p in sorted(folder.glob("*.hlo"))]
    if given.sanitizer:
        return sanitized(paths, given)
    bad = correctness(paths, given)
    if given.time is None:
        timed = [p for p in paths if p.with_suffix(".npz").exists()] or paths
    else:
        timed = given.time
    timings(timed, given)
    return 1 if bad or failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--time", nargs="*", type=Path, metavar="FILE", help="which to time")
    parser.add_argument("--commit", help="what is tested, where git does not know")
    parser.add_argument("--jobs", type=int, default=6, help="programs at once, when not timing")
    parser.add_argument("--seconds", type=float, default=120, help="for one program")
    parser.add_argument("--duration", type=float, default=1.0, help="seconds to time a program for")
    parser.add_argument("--tests", action="store_true", help="run this folder's pytest first")
    parser.add_argument("--sanitizer", choices=("memcheck", "initcheck", "racecheck"))
    parser.add_argument("--one", choices=("check", "time", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--fuse", default="default", help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="default", help=argparse.SUPPRESS)
    parser.add_argument("--unroll", default="auto", help=argparse.SUPPRESS)
    return parser.parse_args()


def describe(commit: str | None = None) -> dict:
    """Return what the figures were taken on."""
    from importlib.metadata import version

    from hlo2graph.backends.cuda.driver import open_device

    device = open_device()
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return {
        "device": device.name,
        "arch": device.arch,
        "driver": device.driver_text,
        "multiprocessors": device.multiprocessors,
        "python": sys.version.split()[0],
        "cuda-bindings": version("cuda-bindings"),
        "numpy": version("numpy"),
        "commit": commit or (None if done.returncode else done.stdout.strip()),
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def unit_tests() -> bool:
    """Run this folder's tests; tell whether one failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", str(Path(__file__).parent)]
    return bool(subprocess.run(command, cwd=REPOSITORY, check=False).returncode)


# ---- the outer process ---------------------------------------------------------------------------


def correctness(paths: list[Path], given: argparse.Namespace) -> int:
    """Check every program in every case; return how many went wrong."""
    cases = [(path, fuse, precision) for path in paths for fuse, precision in CASES]

    def checked(case: tuple[Path, str, str]) -> dict:
        return alone("check", case[0], given, fuse=case[1], precision=case[2])

    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(checked, cases))
    counts: dict[str, int] = {}
    for result in found:
        counts[result["status"]] = counts.get(result["status"], 0) + 1
        if result["status"] != "ok":
            print(
                f"  {result['program']:32} {result['fuse']:8}{result['precision']:8} "
                f"{result['status']}: "
                f"{result.get('why', '')[:300]}"
            )
    print(f"correctness: {counts}", flush=True)
    write(given.out / "correctness.json", found)
    return sum(r["status"] not in ("ok", "refused") for r in found)


def sanitized(paths: list[Path], given: argparse.Namespace) -> int:
    """Run every program under one tool of compute-sanitizer; return the exit code."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        print("compute-sanitizer is not there: it comes with the CUDA toolkit", file=sys.stderr)
        return NO_BACKEND
    prefix = [tool, "--tool", given.sanitizer, "--error-exitcode", "9"]

    def run(case: tuple[Path, str]) -> dict:
        return alone("plain", case[0], given, prefix=prefix, fuse=case[1], precision="highest")

    cases = [(path, fuse) for path in paths for fuse in ("none", "default")]
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(run, cases))
    for result in found:
        if result["status"] != "ok":
            why = result.get("why", "")[-300:]
            print(f"  {result['program']:32} {result['fuse']:8}{result['status']}: {why}")
    clean = sum(r["status"] == "ok" for r in found)
    print(f"{given.sanitizer}: {clean} of {len(found)} clean")
    write(given.out / f"{given.sanitizer}.json", found)
    return int(any(r["status"] not in ("ok", "refused") for r in found))


def timings(paths: list[Path], given: argparse.Namespace) -> None:
    """Time every program, one at a time."""
    found = []
    print(
        f"{'':30} {'fuse':8}{'unroll':7}{'nodes':>6}{'width':>6}  "
        "serial enq/dev/lat     chain dev/lat   graph enq/dev/lat/back to back     call",
        flush=True,
    )
    for path in paths:
        for fuse, unroll in (("none", "auto"), ("default", "auto"), ("default", "never")):
            if unroll == "never" and not any(f.get("unrolled") for f in found[-2:]):
                continue
            result = alone("time", path, given, fuse=fuse, unroll=unroll)
            found.append(result)
            print(line(result), flush=True)
            write(given.out / "timings.json", found)


def line(result: dict) -> str:
    head = f"{result['program']:30} {result['fuse']:8}{result['unroll']:7}"
    if result["status"] != "ok":
        return f"{head}{result['status']}: {result.get('why', '')[:160]}"
    serial, chain, graph = (result["modes"][m] for m in ("serial", "chain", "graph"))
    return (
        f"{head}{result['nodes']:6}{result['width']:6}  "
        f"{us(serial['enqueue'])}{us(serial['device'])}{us(serial['latency'])}  "
        f"{us(chain['device'])}{us(chain['latency'])}  "
        f"{us(graph['enqueue'])}{us(graph['device'])}{us(graph['latency'])}"
        f"{us(graph['back_to_back'])}  {us(result['call']['host'])}"
        f"{'  SLOWER than ' + result['beside_best'][0] if result['beside_best'][2] < 0.98 else ''}"
    )


def us(seconds: float) -> str:
    return f"{seconds * 1e6:8.1f}"


def alone(
    kind: str, path: Path, given: argparse.Namespace, prefix: Sequence[str] = (), **flags: str
) -> dict:
    """Do one thing to one program in a process of its own."""
    base = {"program": path.stem, "unroll": "auto", "precision": "default", **flags}
    options = [f"--{name}={value}" for name, value in flags.items()]
    inner = [sys.executable, "-m", "tests.gpu.suite", str(path), "--one", kind]
    command = [*prefix, *inner, *options]
    command.append(f"--duration={given.duration}")
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=given.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {**base, "status": "hang", "why": f"over {given.seconds:g} s"}
    answers = [text for text in done.stdout.splitlines() if text.startswith("{")]
    if answers and not done.returncode:
        return {**base, **json.loads(answers[-1])}
    why = (done.stderr + done.stdout)[-2000:]
    return {**base, "status": "crashed", "why": f"exit code {done.returncode}: {why}"}


def write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


# ---- the inner process ---------------------------------------------------------------------------


def one(given: argparse.Namespace) -> dict:
    """Check or time one program; whatever goes wrong is a result."""
    import hlo2graph
    from hlo2graph.errors import BackendError, UnsupportedError

    (path,) = given.folders
    try:
        program = hlo2graph.parse(path.read_text(), path.name)
        executable = hlo2graph.compile(
            program,
            "cuda",
            given.precision,
            fuse=given.fuse,
            unroll_loops=given.unroll,
        )
        work = {"check": check, "time": measured, "plain": plain}[given.one]
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
    from hlo2graph.inspect.reference import pinned_results
    from tests.corpus import scaled

    found = []
    rows = zip(executable.plan.outputs, results, want, pinned_results(program), strict=True)
    for bound, got, expected, is_pinned in rows:
        if is_pinned:
            tolerance = tolerance_for(bound.shape.dtype, tf32=executable.tf32)
            tolerance = scaled(tolerance, expected)
            comparison = compare(got, expected, tolerance, bound.name)
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
        "verdict": cuda_verdict(found, built, stats.width),
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
    sys.exit(main())
