"""Time parsing: microseconds an instruction, ours and XLA's.

    python tests/bench/parse.py FILE.hlo [--rounds N]

Each figure is the median CPU time of N rounds in one process, so that others on the machine count
little. XLA's includes nothing but its parser. The last line says how many times as long ours takes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from jax._src.lib import xla_client as xc

from hlo2graph.frontend import parse, verify
from hlo2graph.hlo.printer import format_module

_XLA = "XLA's parser"


def median_seconds(call: Callable[[], object], rounds: int) -> float:
    """Return the median CPU time of a call."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("file", type=Path)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    text = chosen.file.read_text()
    module = parse(text, chosen.file.name)
    count = sum(len(c.instructions) for c in module.computations.values())
    print(f"{chosen.file.name}: {len(text) / 1e6:.2f} MB, {count} instructions")
    taken: dict[str, float] = {}
    for name, call in (
        ("parse", lambda: parse(text)),
        ("verify", lambda: verify(module)),
        ("format", lambda: format_module(module)),
        (_XLA, lambda: xc.hlo.hlo_module_from_text(text)),
    ):
        seconds = taken[name] = median_seconds(call, chosen.rounds)
        rate = len(text) / 1e6 / seconds
        print(f"  {name:12} {seconds / count * 1e6:8.1f} us/instruction {rate:8.2f} MB/s")
    print(f"  parse / XLA's parser {taken['parse'] / taken[_XLA]:.1f}")


if __name__ == "__main__":
    main()
