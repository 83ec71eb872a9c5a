"""Write what the commands print into the README: python tests/readme_output.py [--check].

In the README a block that begins with `$ COMMAND` is followed by that command's output.
Times differ from run to run and from machine to machine, so the block of `run` keeps the times that
it holds, as long as everything else in it is still what the command prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(r"(?<=```text\n)\$ (.*)\n((?:.*\n)*?)(?=```)")


def renewed(readme: str) -> str:
    """Return the README with each block's output as it is now."""

    def block(found: re.Match[str]) -> str:
        now = output(found[1])
        held = found[2]
        return f"$ {found[1]}\n{held if timeless(held) == timeless(now) else now}"

    return BLOCK.sub(block, readme)


def output(command: str) -> str:
    """Return what a shell command prints, errors too, run at the top of the tree."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def timeless(text: str) -> str:
    """Return the text without what measurement and machine decide: times, ratios, the verdict."""
    kept = []
    for block in text.split("\n\n"):
        if re.search(r"latency", block):
            kept.append("\n".join(line.split()[0] for line in block.splitlines()[1:]))
            break  # the verdict follows
        kept.append(block)
    text = re.sub(r"(?m)^ +built .*(\n {11}.*)*", "", "\n\n".join(kept))
    return re.sub(r"NumPy [\d.]+, \d+ cores|\d+ threads", "", text)


def main() -> int:
    held = README.read_text()
    now = renewed(held)
    if "--check" in sys.argv[1:]:
        return held != now
    README.write_text(now)
    return 0


if __name__ == "__main__":
    sys.exit(main())
