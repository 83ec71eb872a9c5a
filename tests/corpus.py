"""Run folders of programs with known results through the public API, and say what holds.

    python tests/corpus.py DIR... [--jobs N] [--seconds S]

A folder holds NAME.hlo files, for each perhaps a NAME.npz of arg0.. and out0.. (flattened leaves),
and perhaps a verdicts.tsv of lines `NAME.hlo<tab>accept|reject`: what is marked reject must raise
HloError. A program without .npz must parse and plan. Each runs in a process of its own, so that
a crash or a hang is one failure. A folder of XLA's dumps is for corpus_graphs.py. Exits with 1 if
anything fails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import hlo2graph
from hlo2graph.hlo import DTYPES
from hlo2graph.inspect.compare import Tolerance, compare, tolerance_for
from hlo2graph.ops.spec import Array

BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES.values()}


def check(path: Path, rejected: bool) -> str:
    """Return '' where the program does what is known of it, else what is wrong."""
    try:
        module = hlo2graph.parse(path.read_text(), path.name)
    except hlo2graph.HloError as error:
        return "" if rejected else f"refused: {first_line(error)}"
    if rejected:
        return "accepted, should be refused"
    results = path.with_suffix(".npz")
    try:
        if not results.exists():
            hlo2graph.plan(module)
            return ""
        return run(module, results)
    except hlo2graph.HloError as error:
        return f"unsupported: {first_line(error)}"


def run(module: object, results: Path) -> str:
    """Run twice on the stored inputs and compare with the stored results."""
    with np.load(results) as held:
        args, want = (
            [held[f"{key}{i}"] for i in range(sum(name.startswith(key) for name in held.files))]
            for key in ("arg", "out")
        )
    executable = hlo2graph.compile(module, matmul_precision="highest")  # as the results were made
    args = [as_dtype(a, dtype) for a, (_, dtype, _) in zip(args, executable.inputs, strict=True)]
    executable(*args)
    got = executable(*args)
    if len(got) != len(want):
        return f"{len(got)} results, expected {len(want)}"
    want = [as_dtype(w, g.dtype) for w, g in zip(want, got, strict=True)]
    tolerances = [scaled(tolerance_for(BY_NUMPY[w.dtype]), w) for w in want]
    compared = (
        compare(g, w, tolerance, f"out{i}")
        for i, (g, w, tolerance) in enumerate(zip(got, want, tolerances, strict=True))
    )
    return "; ".join(str(c) for c in compared if not c.ok)


def scaled(tolerance: Tolerance, want: Array) -> Tolerance:
    """Take the absolute part as a share of the largest result: sums of large numbers cancel."""
    if tolerance.is_exact or want.dtype.kind == "c":
        return tolerance
    wide = want.astype(np.float64)
    largest = np.max(np.abs(wide), initial=0.0, where=np.isfinite(wide))
    return replace(tolerance, absolute=tolerance.absolute * max(1.0, float(largest)))


def as_dtype(array: Array, dtype: np.dtype) -> Array:
    """Undo how .npz stores a dtype that NumPy lacks: as unsigned integers of its width."""
    same_width = array.dtype.itemsize == dtype.itemsize
    return array.view(dtype) if array.dtype != dtype and same_width else array


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def alone(path: Path, rejected: bool, seconds: float) -> str:
    """Check in a process of its own."""
    receive, send = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=answer, args=(path, rejected, send)
    )
    process.start()
    send.close()
    try:
        return receive.recv() if receive.poll(seconds) else f"over {seconds:g} s"
    except EOFError:
        process.join()
        return f"crashed, exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()


def answer(path: Path, rejected: bool, send: Connection) -> None:
    try:
        send.send(check(path, rejected))
    except Exception as error:  # whatever escapes the API is a finding
        send.send(f"{type(error).__name__}: {first_line(error)}")


def verdicts(folder: Path) -> dict[str, str]:
    path = folder / "verdicts.tsv"
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: verdict for name, verdict, *_ in (line.split("\t") for line in lines)}


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    options.add_argument("--jobs", type=int, default=2, help="programs at once")
    options.add_argument("--seconds", type=float, default=60, help="for one program")
    given = options.parse_args()
    failed = total = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for folder in given.folders:
            if any(folder.glob("*/*/edges.txt")):
                from corpus_graphs import check_graphs

                held, dumps = check_graphs(folder)
                failed, total = failed + dumps - held, total + dumps
                continue
            known = verdicts(folder)
            paths = sorted(folder.glob("*.hlo"))
            start = time.perf_counter()
            wrong = list(
                pool.map(
                    lambda p, known=known: alone(p, known.get(p.name) == "reject", given.seconds),
                    paths,
                )
            )
            spent = time.perf_counter() - start
            for path, why in zip(paths, wrong, strict=True):
                if why:
                    print(f"  {path.name:40} {why}")
            bad = sum(map(bool, wrong))
            print(f"{folder}: {len(paths) - bad} of {len(paths)} hold, {spent:.1f} s")
            failed, total = failed + bad, total + len(paths)
    if not total:
        print("no .hlo files there")
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
