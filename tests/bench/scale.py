"""How the cost of each stage grows with the program: a table on stdout, a plot in an SVG file.

    python tests/bench/scale.py [--shapes chain,wide] [--sizes 1000,10000,100000]
                                [--plot build/scale.svg] [FILE.hlo ...]

The programs are made, in the shapes that shapes.py describes; the plot shows the stages of the
first shape and the totals of the others. Files given are measured too. Times are of the
processor, the best of three up to 10,000 instructions. The last column is the exponent: by what
power the total grew since the row above (1 is linear; n log n is about 1.1 here).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shapes import SHAPES, program

from hlo2graph.frontend import parse, verify
from hlo2graph.inspect.figures import columns
from hlo2graph.program.bind import make_plan
from hlo2graph.program.buffers import assign_buffers
from hlo2graph.program.copies import place_copies
from hlo2graph.program.lower import lower
from hlo2graph.program.text.plan import format_plan

STAGES = ("parse", "verify", "lower", "place_copies", "buffers", "plan", "print")


def measure(text: str) -> tuple[int, dict[str, float]]:
    """Return the number of instructions and the seconds that each stage took."""
    took: dict[str, float] = {}

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        took[stage] = time.process_time() - start
        return result

    module = timed("parse", lambda: parse(text))
    module = timed("verify", lambda: verify(module))
    lowered = timed("lower", lambda: lower(module))
    placed = timed("place_copies", lambda: place_copies(lowered))
    buffers = timed("buffers", lambda: assign_buffers(placed))
    settings = {"target": "host", "fuse": "none", "schedule": "concurrent"}
    plan = timed("plan", lambda: make_plan(placed, buffers, **settings))
    timed("print", lambda: format_plan(plan))
    return sum(len(c.instructions) for c in module.computations.values()), took


def best(text: str) -> tuple[int, dict[str, float]]:
    """Measure; small programs three times, of which the quickest counts."""
    count, took = measure(text)
    for _ in range(2 if count <= 10_000 else 0):
        again = measure(text)[1]
        took = again if sum(again.values()) < sum(took.values()) else took
    return count, took


def table(rows: list[tuple[str, int, dict[str, float]]]) -> list[str]:
    cells = [["", "instructions", *STAGES, "total", "us each", "exponent"]]
    before: tuple[str, int, float] | None = None
    for name, count, took in rows:
        total = sum(took.values())
        grew = (
            f"{math.log(total / before[2]) / math.log(count / before[1]):.2f}"
            if before and count > before[1] and name == before[0]
            else ""
        )
        seconds = [f"{took[stage]:.3f}" for stage in STAGES]
        cells.append(
            [name, f"{count:,}", *seconds, f"{total:.3f}", f"{1e6 * total / count:.0f}", grew]
        )
        before = (name, count, total)
    return columns(cells, left=1)


def plot(rows: list[tuple[str, int, dict[str, float]]]) -> Iterator[str]:
    """Yield an SVG: seconds over instructions, both logarithmic, a line a stage."""
    width, height, left, bottom = 720, 480, 60, 40
    low_x, high_x = (math.log10(end(count for _, count, _ in rows)) for end in (min, max))
    low_y, high_y = -4.0, 2.0

    def at(count: float, seconds: float) -> str:
        x = left + (math.log10(count) - low_x) / max(high_x - low_x, 0.1) * (width - left - 170)
        y = (high_y - max(math.log10(max(seconds, 1e-9)), low_y)) / (high_y - low_y)
        return f"{x:.1f},{20 + y * (height - bottom - 20):.1f}"

    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="12">'
    for power in range(int(low_y), int(high_y) + 1):
        x, y = at(10**low_x, 10.0**power).split(",")
        end = at(10**high_x, 10.0**power).split(",")[0]
        yield f'<path d="M{x},{y} H{end}" stroke="#ddd"/><text x="5" y="{y}">1e{power} s</text>'
    for power in range(math.ceil(low_x), math.floor(high_x) + 1):
        x = at(10.0**power, 1).split(",")[0]
        yield f'<text x="{x}" y="{height - 10}" text-anchor="middle">1e{power} instructions</text>'
    main = rows[0][0]
    own = [(n, took) for name, n, took in rows if name == main]
    lines = {f"{main} {stage}": [(n, took[stage]) for n, took in own] for stage in STAGES}
    for shape in dict.fromkeys(name for name, _, _ in rows):
        lines[f"{shape} total"] = [(n, sum(t.values())) for name, n, t in rows if name == shape]
    first, cost = lines[f"{main} total"][0]
    lines["n log n"] = [(n, cost * n * math.log(n) / (first * math.log(first))) for n, _ in own]
    for number, (name, points) in enumerate(lines.items()):
        colour = f"hsl({number * 360 // len(lines)} 70% 40%)"
        dashes = ' stroke-dasharray="4"' if name == "n log n" else ""
        path = " L".join(at(*point) for point in points)
        x, y = at(*points[-1]).split(",")
        yield f'<path d="M{path}" fill="none" stroke="{colour}"{dashes}/>'
        yield f'<text x="{float(x) + 6}" y="{y}" fill="{colour}">{name}</text>'
    yield "</svg>"


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("files", nargs="*", type=Path, metavar="FILE.hlo")
    options.add_argument("--shapes", default=",".join(SHAPES))
    options.add_argument("--sizes", default="1000,3000,10000,30000,100000")
    options.add_argument("--plot", type=Path, default=Path("build/scale.svg"))
    given = options.parse_args()
    measure(program("chain", 1000))  # builds the grammar
    made = [
        (shape, *best(program(shape, int(size))))
        for shape in given.shapes.split(",")
        for size in given.sizes.split(",")
    ]
    files = [(path.stem, *best(path.read_text())) for path in given.files]
    print("\n".join(table([*made, *files])))
    given.plot.parent.mkdir(parents=True, exist_ok=True)
    given.plot.write_text("\n".join(plot(made)) + "\n")
    print(f"\nplot in {given.plot}")


if __name__ == "__main__":
    main()
