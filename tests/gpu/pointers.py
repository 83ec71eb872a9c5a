"""What `hlo2graph pointers` measures, for several programs, on their own arguments.

python -m tests.gpu.pointers mlp.hlo lstm_scan.hlo --out pointers.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import hlo2graph
from hlo2graph.inspect.pointers.lab import run_lab
from hlo2graph.inspect.pointers.report import lab_json, lab_text
from hlo2graph.options import POINTERS
from tests.gpu.one import reference


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sets", type=int, default=4)
    parser.add_argument("--moves", type=int, default=200)
    parser.add_argument("--strategies", default=",".join(POINTERS))
    given = parser.parse_args()
    found = []
    for path in given.files:
        module = hlo2graph.parse(path.read_text(), path.name)
        executable = hlo2graph.compile(module, "cuda")
        args, _, _ = reference(module, path, executable)
        lab = run_lab(
            executable.plan,
            args,
            moves=given.moves,
            sets=given.sets,
            strategies=given.strategies.split(","),
        )
        print(lab_text(lab), end="\n\n", flush=True)
        found.append(lab_json(lab))
        if given.out is not None:
            given.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
