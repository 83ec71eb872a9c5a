"""Everything that only a GPU can show, in one go: results, hazards, memory, timings, calls.

    python -m tests.gpu.suite [DIR...] [--steps STEP...] [--out DIR] [--time FILE...]

Each DIR holds NAME.hlo files, for each perhaps a NAME.npz of arg0.. and out0... The steps:

    tests        this folder's pytest
    correctness  every program, three ways, against known results or the host: correctness.json
    sanitizers   programs of the first DIR under memcheck, initcheck and racecheck, one file each;
                 what fails beside others is run again by itself, see while_node.py
    soak         10,000 calls with arrays that move, and the memory that they hold, by themselves
                 and under memcheck: soak.json, soak_memcheck.json
    timings      programs of the first DIR that have known results: timings.json

Every program runs in a process of its own, so that a crash, a hang or a broken context is one
failure. Exits with 1 if a check fails, with 3 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
SAMPLES = REPOSITORY / "samples"
STEPS = ("tests", "correctness", "sanitizers", "soak", "timings")
CASES = (("default", "default"), ("default", "highest"), ("none", "highest"))  # fuse, precision
TOOLS = ("memcheck", "initcheck", "racecheck")
FOUND = 9  # with what a tool exits that found something
NO_BACKEND = 3
BY_THEMSELVES = ("test_budget.py", "test_partial.py")  # they watch how much memory is free


def main() -> int:
    given = arguments()
    try:
        environment = describe(given.commit)
    except Exception as error:
        print(f"no GPU to test on: {error}", file=sys.stderr)
        return NO_BACKEND
    given.out.mkdir(parents=True, exist_ok=True)
    write(given.out / "environment.json", environment)
    print(json.dumps(environment))
    folders = given.folders or [SAMPLES]
    paths = [p for folder in folders for p in sorted(folder.glob("*.hlo"))]
    first = sorted(folders[0].glob("*.hlo"))
    bad = 0
    if "tests" in given.steps:
        bad += unit_tests(given.jobs)
    if "correctness" in given.steps:
        bad += correctness(paths, given)
    if "sanitizers" in given.steps:
        bad += sanitizers(first, given)
    if "soak" in given.steps:  # alone: it watches the device's memory
        bad += soak(given)
    if "timings" in given.steps:
        known = [p for p in first if p.with_suffix(".npz").exists()] or first
        timings(known if given.time is None else given.time, given)
    return int(bad > 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, metavar="STEP")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--time", nargs="*", type=Path, metavar="FILE", help="which to time")
    parser.add_argument("--commit", help="what is tested, where git does not know")
    parser.add_argument("--jobs", type=int, default=12, help="programs at once, when not timing")
    parser.add_argument("--seconds", type=float, default=120, help="for one program")
    parser.add_argument("--duration", type=float, default=0.15, help="seconds to time a program")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS, metavar="TOOL")
    parser.add_argument("--calls", type=int, default=10_000, help="of the soak")
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


def unit_tests(jobs: int) -> int:
    """Run this folder's tests, several at once; return how many runs had one that failed."""
    here = Path(__file__).parent
    alone = [str(here / name) for name in BY_THEMSELVES]
    together = [str(here), *(f"--ignore={path}" for path in alone)]
    return sum(_pytest(workers, paths) for workers, paths in ((jobs, together), (0, alone)))


def _pytest(workers: int, paths: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", f"-n{workers}", "-p", "no:benchmark", *paths]
    return int(subprocess.run(command, cwd=REPOSITORY, check=False).returncode != 0)


def correctness(paths: list[Path], given: argparse.Namespace) -> int:
    """Check every program in every case; return how many went wrong."""
    cases = [(path, fuse, precision) for path in paths for fuse, precision in CASES]

    def checked(case: tuple[Path, str, str]) -> dict:
        return alone("check", case[0], given, fuse=case[1], precision=case[2])

    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(checked, cases))
    tell("correctness", found)
    write(given.out / "correctness.json", found)
    return sum(r["status"] not in ("ok", "refused") for r in found)


def sanitizers(paths: list[Path], given: argparse.Namespace) -> int:
    """Run every program under each tool of compute-sanitizer; return how many are not clean."""
    if (program := sanitizer()) is None:
        return 0
    cases = [(tool, path, fuse) for fuse in ("none", "default") for path in paths
             for tool in given.tools]  # fmt: skip

    def run(case: tuple[str, Path, str]) -> dict:
        tool, path, fuse = case
        prefix = under(program, tool)
        return alone("plain", path, given, prefix=prefix, fuse=fuse, precision="highest")

    with ThreadPoolExecutor(given.jobs) as pool:
        bare = pool.map(partial(bare_loop, program), given.tools)
        found = list(pool.map(run, cases))
    # With several processes on the GPU the tools make a WHILE node fail, even a bare one.
    for tool, holds in zip(given.tools, bare, strict=True):
        print(f"{tool}, beside others: a bare WHILE node {'holds' if holds else 'FAILS'}")
    for number, case in enumerate(cases):
        if found[number]["status"] in ("crashed", "error"):
            found[number] = {**run(case), "beside others": found[number]}
    for tool in given.tools:
        rows = [row for row, case in zip(found, cases, strict=True) if case[0] == tool]
        tell(tool, rows)
        write(given.out / f"{tool}.json", rows)
    return sum(r["status"] not in ("ok", "refused") for r in found)


def under(program: str, tool: str) -> list[str]:
    return [program, "--tool", tool, "--error-exitcode", str(FOUND)]


def bare_loop(program: str, tool: str) -> bool:
    """Tell whether a WHILE node made without hlo2graph runs under a tool."""
    command = [*under(program, tool), sys.executable, "-m", "tests.gpu.while_node"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)
    return done.returncode == 0


def soak(given: argparse.Namespace) -> int:
    """Call with arrays that move, without a tool and under memcheck; return how often it failed."""
    bad = long_run(given, "soak", [])
    if (program := sanitizer()) is None:
        return bad
    # Where it takes the host's backtraces, it never lets go of Python's frames: see held_frames.py.
    return bad + long_run(
        given, "soak_memcheck", [*under(program, "memcheck"), "--show-backtrace=device"]
    )


def long_run(given: argparse.Namespace, name: str, prefix: list[str]) -> int:
    command = [*prefix, sys.executable, "-m", "tests.gpu.soak", f"--calls={given.calls}"]
    command += [f"--out={given.out.resolve() / name}.json"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    print(f"{name}, exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return int(done.returncode != 0)


def sanitizer() -> str | None:
    """Return where compute-sanitizer is, or say that its checks are left out."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if Path(tool).exists():
        return tool
    print("left out, as compute-sanitizer, which comes with the CUDA toolkit, is not there")
    return None


def tell(what: str, found: list[dict]) -> None:
    """Print the results that are not ok, and the counts."""
    for result in found:
        if result["status"] != "ok":
            print(
                f"  {result['program']:32} {result['fuse']:8}{result['precision']:8} "
                f"{result['status']}: {result.get('why', '')[:300]}"
            )
    print(f"{what}: {dict(Counter(r['status'] for r in found))}", flush=True)


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
    inner = [sys.executable, "-m", "tests.gpu.one", kind, str(path.resolve())]
    try:
        done = subprocess.run(
            [*prefix, *inner, *options, f"--duration={given.duration}"],
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


if __name__ == "__main__":
    sys.exit(main())
