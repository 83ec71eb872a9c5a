"""Store files of this version, for newer ones to read: python -m tests.store_release.

They lie in tests/released/VERSION: programs, plans as text, compiled files, results, and a document
of each JSON schema. Run it when a version is about to be tagged; from then on its folder stays as
it is, and tests/test_released.py reads it in every later one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import hlo2graph as h2g
from hlo2graph.inspect.arrays import random_inputs, save_outputs
from tests.placements import PROGRAMS

ROOT = Path(__file__).parent.parent
RELEASED = ROOT / "tests" / "released"
TYPES = """\
HloModule types, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY main {
  x = f32[3,5] parameter(0)
  w = f32[3,40]{0,1} constant({...})
  b = bf16[5] constant({1, -2, inf, nan, 0.5})
  s = s4[5] constant({1, -8, 7, 0, 3})
  c = c64[5] constant({(1, 2), (0, -1), (3, 3), (0, 0), (1, 1)})
  k = pred[5] constant({1, 0, 1, 1, 0})
  d = f32[40,5] dot(w, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  f = f32[5] convert(s)
  g = f32[5] real(c)
  h = f32[5] select(k, f, g)
  r = f32[3,5] broadcast(h), dimensions={1}
  y = f32[3,5] add(x, r), metadata={op_name="add" source_file="a.py" source_line=3}
  ROOT t = (f32[3,5], f32[40,5], bf16[5]) tuple(y, d, b)
}
"""
STORED = {
    "diamond": (PROGRAMS["diamond"], {}),
    "loop": (PROGRAMS["loop"], {}),
    "nested": (PROGRAMS["nested"], {}),
    "switch": (PROGRAMS["switch"], {}),
    "copies": (PROGRAMS["copies"], {"fuse": "none"}),
    "matmuls": (PROGRAMS["matmuls"], {"fuse": "none"}),
    "types": (TYPES, {}),
}
COMMANDS = {
    "plan": ("plan", "{chains}", "--why", "--target", "sm_90"),
    "run": ("run", "{loop}", "--warmup", "0", "--iterations", "2", "--profile", "nodes"),
    "budget": ("budget", "{chains}"),
    "buffers": ("buffers", "{loop}"),
    "check": ("check", "{loop}", "--runs", "1"),
    "explain": ("explain", "{chains}", "a", "c0", "--max-buffer-reuse", "-1"),
    "diff": ("diff", "{chains}", "{loop}"),
    "xla": ("xla", "{xla_dump}"),
    "doctor": ("doctor",),
}


def store(folder: Path) -> None:
    """Write all files of this version to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (text, options) in STORED.items():
        big = np.array2string(
            np.arange(120, dtype="f4").reshape(3, 40) / 7, separator=", ", threshold=1000
        )
        text = text.lstrip().replace("{...}", big.replace("[", "{").replace("]", "}"))
        (folder / f"{name}.hlo").write_text(text)
        module = h2g.parse(text, f"{name}.hlo")
        host, device = h2g.plan(module, target="host"), h2g.plan(module, target="sm_90", **options)
        for plan in (host, device):
            (folder / f"{name}.{plan.target}.thunks").write_text(str(plan))
            h2g.save(plan, folder / f"{name}.{plan.target}.h2g", module=module)
        executable = h2g.compile(host, "host")
        args = random_inputs(host.inputs, 0)
        np.savez(folder / f"{name}.in.npz", **{f"arg{k}": a for k, a in enumerate(args)})
        save_outputs(folder / f"{name}.out.npz", executable(*args))
    for name, command in COMMANDS.items():
        _document(folder / f"{name}.json", command)
    _run("dot", str(ROOT / "samples" / "loop.hlo"), "-o", str(folder / "graph.json"))


def _document(path: Path, command: tuple[str, ...]) -> None:
    samples = {p.stem: str(p) for p in (ROOT / "samples").iterdir() if p.suffix != ".thunks"}
    with TemporaryDirectory() as folder:
        written = Path(folder, "document.json")
        _run(*(part.format(**samples) for part in command), "--json", str(written))
        path.write_text(json.dumps(json.loads(written.read_text()), separators=(",", ":")) + "\n")


def _run(*args: str) -> None:
    command = [sys.executable, "-m", "hlo2graph", *args]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


if __name__ == "__main__":
    store(RELEASED / h2g.__version__)
