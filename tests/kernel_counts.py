"""Count the thunks of programs beside XLA's, and print the README's table of them.

    python tests/kernel_counts.py DUMPS PROGRAMS [--write]

DUMPS holds PROGRAM/LHS/thunk_sequence.txt, as XLA:GPU prints it, and perhaps other folders beside
LHS, made with other flags or for another machine; PROGRAMS holds PROGRAM.hlo. Thunks in loops and
branches count too, each once. What a dynamic-slice or an asynchronous thunk holds is the thunk
itself; the end of asynchronous work is no work. --write puts the table into the README.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import hlo2graph
from hlo2graph.frontend.xla_dump import Printed, parse_sequence
from hlo2graph.program.uses import walk

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- kernels: begin -->\n", "<!-- kernels: end -->\n"
TARGET = "sm_90"


def main() -> int:
    dumps, programs = map(Path, sys.argv[1:3])
    found = table(dumps, programs)
    print(found, end="")
    if "--write" in sys.argv[3:]:
        before, rest = README.read_text().split(BEGIN)
        README.write_text(f"{before}{BEGIN}{found}{END}{rest.split(END)[1]}")
    return 0


def table(dumps: Path, programs: Path) -> str:
    """Return a row for each program: XLA's thunks, the fewest of its variants', and ours."""
    lines = [
        "| program | XLA | XLA's fewest | `--fuse none` | hlo2graph |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for sequence in sorted(dumps.glob("*/LHS/thunk_sequence.txt")):
        folder = sequence.parent.parent
        fewest = min(xla_thunks(other) for other in folder.glob("*/thunk_sequence.txt"))
        text = (programs / f"{folder.name}.hlo").read_text()
        counts = [xla_thunks(sequence), fewest, thunks(text, "none"), thunks(text, "default")]
        lines.append(f"| {folder.name} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def thunks(text: str, fuse: str) -> int:
    return sum(1 for _ in walk(hlo2graph.plan(text, target=TARGET, fuse=fuse).body))


def xla_thunks(sequence: Path) -> int:
    return launched(parse_sequence(sequence.read_text(), str(sequence)))


def launched(lines: Iterable[Printed]) -> int:
    """Return how many of XLA's lines are work; only loops and branches name what they hold."""
    return sum(
        (line.kind != "kAsyncDone") + sum(launched(inner) for label, inner in line.inside if label)
        for line in lines
    )


if __name__ == "__main__":
    sys.exit(main())
