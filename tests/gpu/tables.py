"""The README's tables of what was measured on a GPU: python -m tests.gpu.tables [--check].

They are made from tests/gpu/results; --check tells whether the README holds them as they are.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "tests" / "gpu" / "results"
README = ROOT / "README.md"
LARGEST = "400"  # MB
OURS, THEIRS = "hlo2graph", ("xla", "xla LHS", "xla CONCURRENT")
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


def main() -> int:
    text = README.read_text()
    wanted = renewed(text)
    if "--check" in sys.argv[1:]:
        print("the tables are as measured" if text == wanted else "run python -m tests.gpu.tables")
        return int(text != wanted)
    README.write_text(wanted)
    return 0


def renewed(readme: str) -> str:
    """Return the README with its tables as the results say."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{tables()}{END}{after}"


def tables() -> str:
    bench = json.loads((RESULTS / "bench.json").read_text())
    timings = json.loads((RESULTS / "timings.json").read_text())
    measured = json.loads((RESULTS / "forms.json").read_text())
    moved = json.loads((RESULTS / "pointers.json").read_text())
    called = json.loads((RESULTS / "jax_jit.json").read_text())["environment"]["commit"]
    jax_calls = (
        "`hlo2graph.jax.jit` beside `jax.jit`, JAX's own arrays in and out (`python -m\n"
        f"tests.gpu.jax_jit`, at {called}): microseconds to completion / a call of many queued,\n"
        "and both over jax.jit's, of ours with the better latency: over 1 ours is slower, as\n"
        "queued calls mostly are.\n\n" + (RESULTS / "jax_jit.md").read_text()
    )
    parts = [beside_xla(bench), bounds(bench), modes(timings), moving(moved), jax_calls]
    parts.append(forms(measured))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def beside_xla(bench: dict) -> str:
    """Return latency and time per call back to back, ours and XLA's, with the ratio to its best."""
    where = bench["environment"]
    lines = [
        f"{where['device']}, driver {where['driver']}, JAX {where['jax']}, {where['date'][:10]}: "
        "microseconds of one call to completion / per call of 100 back to back.",
        "XLA as it comes, and with all that it can put into one command buffer, scheduled by",
        "LHS or as CONCURRENT. The last column is hlo2graph's time over that of the fastest of",
        "the three: 0.50 is half the time, over 1 XLA is faster.",
        "",
        "| program | hlo2graph | `--fuse none` | XLA | XLA LHS | XLA CONCURRENT | "
        "hlo2graph / fastest XLA |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    ratios = []
    for program in bench["programs"]:
        runs = program["runs"]
        cells = [
            f"{runs[name]['latency'] * 1e6:.0f} / {runs[name]['throughput'] * 1e6:.0f}"
            if "latency" in runs[name] else "refused"
            for name in (OURS, "hlo2graph none", *THEIRS)
        ]  # fmt: skip
        best = [runs[name] for name in THEIRS if "latency" in runs[name]]
        if best and "latency" in runs[OURS]:
            keys = ("latency", "throughput")
            ratio = [runs[OURS][key] / min(r[key] for r in best) for key in keys]
            ratios.append(ratio)
            cells.append(f"{ratio[0]:.2f} / {ratio[1]:.2f}")
        else:
            cells.append("")
        lines.append(f"| {' | '.join([program['program'], *cells])} |")
    mean = " / ".join(f"{geometric(column):.2f}" for column in zip(*ratios, strict=True))
    lines.append(f"| geometric mean | | | | | | {mean} |")
    return "\n".join(lines) + "\n"


def launched(bench: dict) -> str:
    """Say what the bounds take for launching, where that was measured beside them."""
    ours = [p["runs"][OURS] for p in bench["programs"]]
    seconds = sorted(row["launch"] * 1e6 for row in ours if "launch" in row)
    if not seconds:
        return ""
    return (
        " A graph of one small\nkernel, which each bound begins with, took "
        f"{seconds[0]:.1f} to {seconds[-1]:.1f} on this machine."
    )


def bounds(bench: dict) -> str:
    """Return device time beside the bound, compile times, and memory beside XLA's."""
    rows = [(p["program"], p["runs"]) for p in bench["programs"] if "ratio" in p["runs"][OURS]]
    if not rows:
        return ""
    lines = [
        "Microseconds of the graph on the device, the least that its longest path needs (bound),",
        "and how many times that it takes; the same (flat) where a sort, a factor or a transform",
        "is taken for as quick as a fold, not for the steps that it cannot do without",
        "(tests/bench/NOTES.md); seconds to compile cold / milliseconds warm; MB on the device,",
        f"XLA's in its three ways.{launched(bench)}",
        "",
        "| program | device | bound | device / bound | flat bound | device / flat | compile | "
        "XLA's | memory | XLA's | LHS | CONCURRENT |",
        f"| --- |{' ---: |' * 11}",
    ]
    for program, runs in rows:
        ours = runs[OURS]
        kinds = ("", " flat") if "bound flat" in ours else (None, "")  # what is of before has one
        cells = [f"{ours['device'] * 1e6:.1f}"]
        for kind in kinds:
            known = kind is not None
            cells.append(f"{ours[f'bound{kind}'] * 1e6:.1f}" if known else "")
            cells.append(f"{ours[f'ratio{kind}']:.2f}" if known else "")
        cells += [
            f"{runs[name]['compile']:.2f} / {runs[name]['warm'] * 1e3:.0f}" if "warm" in runs[name]
            else "refused"
            for name in (OURS, "xla")
        ]  # fmt: skip
        cells += [
            f"{runs[name]['memory'] / 1e6:.2f}" if "memory" in runs[name] else "refused"
            for name in (OURS, *THEIRS)
        ]
        lines.append(f"| {' | '.join([program, *cells])} |")
    return "\n".join(lines) + "\n\n"


def modes(timings: list[dict]) -> str:
    """Return device time of the serial stream, the chain graph and the graph, unfused."""
    rows = [f for f in timings if f["status"] == "ok" and f["fuse"] == "none"]
    kept = all(found["beside_best"][2] is not None for found in rows)
    where = "." if kept else ", where samples were kept."
    lines = [
        "`--fuse none`: microseconds on the device, the host's launching left out (the stream is",
        "held back until all is enqueued, where the host steers no loop). The speed-up is that of",
        "the latencies, launching included: the time of the better of stream and chain over the",
        "graph's, so that over 1 the graph is faster; of paired runs, with its 95 %",
        f"interval{where}{marked(rows)}",
        "",
        "| program | nodes | width | serial stream | chain graph | graph | speed-up over the "
        "better |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for found in rows:
        cells = [f"{found['modes'][m]['device'] * 1e6:.1f}" for m in ("serial", "chain", "graph")]
        middle, low, high = found["beside_best"][1:4]
        row = [
            found["program"] + "*" * ("earlier" in found),
            str(found["nodes"]),
            str(found["width"]),
            *cells,
            f"{middle:.2f}x" + ("" if low is None else f" ({low:.2f} to {high:.2f})"),
        ]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def moving(labs: list[dict]) -> str:
    """Return what a call costs by strategy and by how its arrays move."""
    names = list(dict.fromkeys(row["strategy"] for lab in labs for row in lab["rows"]))
    calls = {lab["moves"] * lab["executables"] for lab in labs}
    lines = [
        "`hlo2graph pointers`: microseconds of one call to completion, where arrays stay, rotate",
        "among four sets, or are new at each call; `auto`'s time over that of the best of the",
        f"others, by turns that alternate ({max(calls)} calls of three executables each), with a",
        "95 % interval that counts in how much the executables of one strategy differ; and what",
        "`auto` took beyond that while it learned, in milliseconds of as many calls before.",
        "",
        f"| program | arrays | {' | '.join(names)} | auto / best | learning |",
        f"| --- | --- |{' ---: |' * (len(names) + 2)}",
    ]
    for lab in labs:
        for pattern in dict.fromkeys(row["pattern"] for row in lab["rows"]):
            rows = {row["strategy"]: row for row in lab["rows"] if row["pattern"] == pattern}
            cells = [f"{rows[name]['latency'] * 1e6:.0f}" for name in names]
            ratio, (low, high) = rows["auto"]["ratio"], rows["auto"]["interval"]
            cells.append(f"{ratio:.2f} ({low:.2f} to {high:.2f})")
            cells.append(f"{rows['auto']['learned'] * 1e3:.1f}")
            lines.append(
                f"| {lab['name'].removeprefix('jit_')} | {pattern} | {' | '.join(cells)} |"
            )
    return "\n".join(lines) + "\n"


def forms(measured: dict) -> str:
    """Return how near each kernel form comes to a copy of as many bytes, on the largest arrays."""
    earlier = marked(measured["forms"])
    lines = [
        "Kernel forms on 400 MB: bandwidth, and its share of that of a device-to-device copy of as",
        "many bytes: over 1 where it moves them faster than the copy, which writes as much as it",
        f"reads. `under` marks what misses its target; `-` has none.{earlier}",
        "",
        "| form | kernels | GB/s | share of a copy's | target |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for found in measured["forms"]:
        name, size = found["form"].rsplit(" ", 2)[0], found["form"].rsplit(" ", 2)[1]
        if size == LARGEST:
            part = statistics.median(found["part"])
            under = " under" if found["under"] else ""
            name += "*" * ("earlier" in found)
            cells = [name, str(found["kernels"]), f"{found['bandwidth'] / 1e9:,.0f}"]
            cells += [f"{part:.2f}{under}", f"{found['target'] or '-'}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def marked(rows: list[dict]) -> str:
    """Explain the star, where there is one."""
    return " Rows with * are of an earlier commit." * any("earlier" in row for row in rows)


def geometric(values: tuple[float, ...]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    sys.exit(main())
