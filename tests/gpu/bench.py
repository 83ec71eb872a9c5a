"""hlo2graph beside XLA in one process, program by program.

    python -m tests.gpu.bench [PATH...] [--out DIR] [--rounds N] [--only NAME...]

Each PATH is an HLO file or a folder of them, with arguments in NAME.npz if there is one; those of
tests/gpu/programs.py are measured too. Needs jax for CUDA. XLA runs as it comes, and with command
buffers for all that it can put into one (smallest graph 1), scheduled by LHS and by CONCURRENT. All
take turns, round by round, on device-resident arguments; a turn begins with a call that is not
timed, since all others have just used the caches.

    latency     call, and wait until its results are there; median
    throughput  100 calls, one wait; per call, median
    device      the graph alone, as the device has it; median
    launch      a graph of the smallest kernel, as the device has it in between; median
    bound       the least that the device needs for this plan (inspect/budget/bound.py), with that
                launch; flat: the same where a sort, a factor, a transform were as quick as a fold
    compile     seconds from text to something to call: cold, with no cache of kernels and nothing
                tuned before, and warm, the same again
    memory      bytes on the device: arguments, results, temporaries, constants

--out gets bench.json, samples and all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.gpu.programs import PROGRAMS, Program, lowered

if TYPE_CHECKING:
    from tests.gpu.contenders import OurCall

QUEUED = 100
TIMED = 3  # calls a turn
WARM = ("hlo2graph", "xla")  # whose second compilation is timed
FIRST = "HloModule first\nENTRY e { p = f32[8,8] parameter(0)\n ROOT n = f32[8,8] negate(p) }\n"


def main() -> int:
    given = _arguments()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from hlo2graph.errors import BackendError
    from tests.gpu.contenders import OURS, XLA, OurCall
    from tests.gpu.suite import describe

    jax.config.update("jax_enable_x64", True)
    try:
        environment = describe(given.commit) | {"jax": jax.__version__}
        jax.devices("gpu")
    except (BackendError, RuntimeError) as error:
        print(f"nothing to measure on: {error}", file=sys.stderr)
        return 3
    given.out.mkdir(parents=True, exist_ok=True)
    first = Program("first", FIRST, (np.zeros((8, 8), np.float32),))
    least = OurCall(first.text, first.arguments, {})
    compare(first, 1, least)  # loads the libraries
    found = []
    print(f"microseconds: latency / throughput{'':4}", *(f"{n:>20}" for n in (*OURS, *XLA)), sep="")
    for program in programs(given.paths, given.only):
        rows = compare(program, given.rounds, least)
        found.append({"program": program.name, "runs": rows})
        cells = "".join(f"{cell(rows[name]):>20}" for name in (*OURS, *XLA))
        print(f"{program.name[:38]:38}{cells}", flush=True)
        content = {"environment": environment, "programs": found}
        (given.out / "bench.json").write_text(json.dumps(content) + "\n")
    print(*closing(found), sep="\n")
    for result in found:
        for name, row in result["runs"].items():
            if "why" in row:
                print(f"{result['program']}, {name}: {row['why'].splitlines()[-1][:200]}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = Path(__file__).parent
    parser.add_argument("paths", nargs="*", type=Path, default=[here.parent.parent / "samples"])
    parser.add_argument("--out", type=Path, default=here / "results")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--commit", help="what is measured, where git does not know")
    parser.add_argument("--only", nargs="*", metavar="NAME")
    return parser.parse_args()


def programs(paths: Sequence[Path], only: Sequence[str] | None) -> Iterator[Program]:
    """Yield the programs to measure."""
    files = [f for p in paths for f in (sorted(p.glob("*.hlo")) if p.is_dir() else [p])]
    for path in files:
        if not only or path.stem in only:
            text = path.read_text()
            yield Program(path.stem, text, tuple(arguments(path, text)))
    for name in PROGRAMS:
        if not only or name in only:
            yield lowered(name)


def cell(row: dict) -> str:
    if "latency" not in row:
        return "-"
    return f"{row['latency'] * 1e6:.1f} / {row['throughput'] * 1e6:.1f}"


def closing(found: Sequence[dict]) -> Iterator[str]:
    """Yield the second table: the bound, compile times and memory."""
    times = ("device", 9), ("bound", 9), ("ratio", 7), ("flat", 9), ("ratio", 7)
    others = ("compile, warm", 17), ("XLA", 15), ("memory MB", 12), ("XLA", 9), ("LHS", 9)
    yield f"\n{'':26}" + "".join(f"{n:>{w}}" for n, w in (*times, *others, ("CONC.", 9)))
    for result in found:
        runs = result["runs"]
        ours = runs["hlo2graph"]
        line = f"{result['program'][:26]:26}"
        line += f"{figure(ours, 'device', 1e6):>9}{figure(ours, 'bound', 1e6):>9}"
        line += f"{figure(ours, 'ratio', 1, 2):>7}{figure(ours, 'bound flat', 1e6):>9}"
        line += f"{figure(ours, 'ratio flat', 1, 2):>7}"
        for name, wide in (("hlo2graph", 17), ("xla", 15)):
            row = runs[name]
            both = f"{figure(row, 'compile', 1, 2)} s, {figure(row, 'warm', 1e3, 0)} ms"
            line += f"{both:>{wide}}"
        names = ("hlo2graph", "xla", "xla LHS", "xla CONCURRENT")
        memory = (figure(runs[n], "memory", 1e-6, 2) for n in names)
        yield line + "".join(f"{m:>{w}}" for m, w in zip(memory, (12, 9, 9, 9), strict=True))


def figure(row: dict, key: str, scale: float, digits: int = 1) -> str:
    return f"{row[key] * scale:.{digits}f}" if key in row else "-"


def compare(program: Program, rounds: int, least: OurCall) -> dict[str, dict]:
    """Build every contender, then let them take turns, and the least graph that there is."""
    from tests.gpu.contenders import OurCall, contenders

    rows: dict[str, dict] = {}
    calls: dict = {}
    for name, make in contenders(program.text, program.arguments).items():
        try:
            calls[name], rows[name] = built(make, warm=name in WARM)
        except Exception:
            rows[name] = {"why": traceback.format_exc(limit=-3).strip()}
    samples: dict[str, dict[str, list]] = {
        name: {"latency": [], "throughput": [], "device": []} for name in calls
    }
    launches: list[float] = []
    for turn in range(rounds):
        order = list(calls)
        for name in order[turn % len(order) :] + order[: turn % len(order)] if order else ():
            take_turn(calls[name], samples[name], is_long=turn % 4 == 0)
        launches += device_seconds(least)
    for name, taken in samples.items():
        rows[name] |= {key: float(np.median(values)) for key, values in taken.items() if values}
        low, high = np.percentile(taken["latency"], (10, 90))
        rows[name] |= {"p10": float(low), "p90": float(high), "samples": taken}
    first = calls.get("hlo2graph")
    if isinstance(first, OurCall):
        row = rows["hlo2graph"]
        row["launch"] = float(np.median(launches))
        row |= first.bound(row["launch"])
        for kind in ("", " flat"):
            if row.get(f"bound{kind}"):
                row[f"ratio{kind}"] = row["device"] / row[f"bound{kind}"]
    agreement(rows, calls)
    return rows


def built(make, *, warm: bool) -> tuple:
    """Build a contender with no cache of kernels, and perhaps again with what that left."""
    before = os.environ.get("HLO2GRAPH_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HLO2GRAPH_CACHE_DIR"] = folder
        try:
            found = make()
            row = {"compile": found.compile, "memory": found.memory}
            if warm:
                row["warm"] = make().compile
        finally:
            os.environ.pop("HLO2GRAPH_CACHE_DIR")
            if before is not None:
                os.environ["HLO2GRAPH_CACHE_DIR"] = before
    for _ in range(5):
        found.call()
        found.wait()
    return found, row


def take_turn(found, samples: dict[str, list], *, is_long: bool) -> None:
    """Time one contender."""
    found.call()
    found.wait()
    for _ in range(TIMED):
        start = time.perf_counter()
        found.call()
        found.wait()
        samples["latency"].append(time.perf_counter() - start)
    if is_long:
        start = time.perf_counter()
        for _ in range(QUEUED):
            found.call()
        found.wait()
        samples["throughput"].append((time.perf_counter() - start) / QUEUED)
    if hasattr(found, "clock"):
        samples["device"] += device_seconds(found)


def device_seconds(found: OurCall) -> list[float]:
    return [found.clock.seconds() for _ in range(TIMED)]


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


if __name__ == "__main__":
    sys.exit(main())
