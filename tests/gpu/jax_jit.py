"""`hlo2graph.jax.jit` beside `jax.jit`, function by function: python -m tests.gpu.jax_jit.

Both are called as a JAX program calls them: arrays of JAX's on the device in, such arrays out, and
results of one call are arguments of the next where the function donates. They take turns.

    call      until the call returns; median
    latency   until its results are there too; median
    queued    100 calls, one wait; per call, median
    moved     latency with arguments that lie elsewhere at each call, in turn at four places
    compile   seconds of the first call

--out gets jax_jit.json and jax_jit.md, a table of microseconds. Needs jax for CUDA; on another
machine `--backend host` measures what the calls take there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

QUEUED = 100
PLACES = 4  # copies of the arguments that take turns
HEAD = ("call", "latency", "queued", "moved")


def main(args: Sequence[str] | None = None) -> int:
    given = _arguments(args)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    import hlo2graph.jax
    from tests.gpu.jax_functions import FUNCTIONS

    environment = {"jax": jax.__version__, "device": str(jax.devices()[0])}
    if given.backend == "cuda":
        from tests.gpu.suite import describe

        environment |= describe(given.commit)
    found: dict[str, Any] = {}
    print(f"{'us':20}{'jax.jit':>34}   ours: {' / '.join(HEAD)}")
    for name in given.only or FUNCTIONS:
        contenders = {"jax.jit": lambda f: jax.jit(f.call, **f.flags)}
        for pointers in given.pointers:
            options = {"backend": given.backend, "pointers": pointers}
            contenders[f"hlo2graph {pointers}"] = lambda f, options=options: hlo2graph.jax.jit(
                f.call, **f.flags, **options
            )
        found[name] = compared(FUNCTIONS[name], contenders, given.seconds)
        print(f"{name[:20]:20}", *(cell(row) for row in found[name].values()), sep="  ", flush=True)
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            document = {"environment": environment, "functions": found}
            (given.out / "jax_jit.json").write_text(json.dumps(document, indent=1) + "\n")
            (given.out / "jax_jit.md").write_text(table(found))
    return 0


def _arguments(args: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--pointers", nargs="*", default=["auto"])
    parser.add_argument("--backend", default="cuda", choices=("cuda", "host"))
    parser.add_argument("--seconds", type=float, default=0.3, help="for each mode of a function")
    parser.add_argument("--commit", help="what is measured, where git does not know")
    return parser.parse_args(args)


def compared(
    make: Callable[[], Any], contenders: dict[str, Callable[..., Any]], seconds: float
) -> dict[str, dict[str, Any]]:
    """Measure all contenders on one function, and how far their results are from the first's."""
    import jax
    import numpy as np

    function = make()
    rows: dict[str, dict[str, Any]] = {name: {} for name in contenders}
    calls: dict[str, Caller] = {}
    wanted: list[Any] = []
    for name, jitted in contenders.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # it would be jax.jit that is measured
                calls[name] = Caller(jitted(function), function)
        except Exception as error:
            traceback.print_exc(limit=-3)
            rows[name]["why"] = f"{type(error).__name__}: {error}"[:300]
            continue
        rows[name]["compile"] = calls[name].compile
        results = [np.asarray(r, np.float64) for r in jax.tree.leaves(calls[name].first)]
        wanted = wanted or results
        pairs = zip(results, wanted, strict=True)
        rows[name]["difference"] = max(
            float(np.max(np.abs(a - b) / (1e-3 + np.abs(b)), initial=0)) for a, b in pairs
        )
    samples: dict[str, dict[str, list[float]]] = {n: {mode: [] for mode in HEAD} for n in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or not all(s["moved"] for s in samples.values()):
        for name, caller in calls.items():
            caller.turn(samples[name])
    for name, taken in samples.items():
        rows[name] |= {mode: statistics.median(times) for mode, times in taken.items()}
    return rows


class Caller:
    """One jit of one function, with arguments on the device."""

    def __init__(self, jitted: Callable[..., Any], function: Any) -> None:
        import jax

        self._jitted = jitted
        self._chained = bool(function.flags)  # the first result is the next call's first argument
        self._places = [jax.device_put(function.args) for _ in range(PLACES)]
        jax.block_until_ready(self._places)
        start = time.perf_counter()
        self.first = jax.block_until_ready(self._jitted(*jax.device_put(function.args)))
        self.compile = time.perf_counter() - start
        for at in range(3 * PLACES):
            self._wait(self._call(at % PLACES))

    def turn(self, samples: dict[str, list[float]]) -> None:
        """Add a sample or some of each mode."""
        self._wait(self._call(0))
        for _ in range(5):
            start = time.perf_counter()
            result = self._call(0)
            returned = time.perf_counter()
            self._wait(result)
            samples["call"].append(returned - start)
            samples["latency"].append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(QUEUED):
            result = self._call(0)
        self._wait(result)
        samples["queued"].append((time.perf_counter() - start) / QUEUED)
        for at in range(PLACES):
            start = time.perf_counter()
            self._wait(self._call(at))
            samples["moved"].append(time.perf_counter() - start)

    def _call(self, at: int) -> Any:
        result = self._jitted(*self._places[at])
        if self._chained:
            self._places[at] = (result[0], *self._places[at][1:])
        return result

    def _wait(self, result: Any) -> None:
        import jax

        jax.block_until_ready(result)


def cell(row: dict[str, Any]) -> str:
    if "latency" not in row:
        return row["why"][:80]
    return " / ".join(f"{row[mode] * 1e6:6.1f}" for mode in HEAD)


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the results as a table: latency / per queued call of each, and the ratio to JAX's."""
    names = list(next(iter(found.values())))
    lines = [
        f"| function | {' | '.join(names)} | hlo2graph / jax.jit |",
        f"| --- |{' ---: |' * (len(names) + 1)}",
    ]
    for function, rows in found.items():
        cells = [
            f"{row['latency'] * 1e6:.0f} / {row['queued'] * 1e6:.0f}" if "latency" in row else "-"
            for row in rows.values()
        ]
        first, *others = rows.values()
        ours = [row for row in others if "latency" in row]
        ratio = "-"
        if ours and "latency" in first:
            best = min(ours, key=lambda row: row["latency"])
            ratio = " / ".join(f"{best[m] / first[m]:.2f}" for m in ("latency", "queued"))
        lines.append(f"| {function} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
