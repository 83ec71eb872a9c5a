"""What promises to need no GPU needs no CUDA packages either, as after a plain install."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent.parent / "samples" / "loop.hlo"
WITHOUT = (
    "import sys; sys.modules['cuda'] = None; "  # importing it fails, as where it is not installed
    "from hlo2graph.cli.main import main; sys.argv[0] = 'hlo2graph'; main()"
)


def without_cuda(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "args",
    [
        ("dot",),
        ("dot", "--stage", "hlo"),
        ("dot", "--stage", "graph", "--target", "sm_90"),
        ("plan", "--target", "sm_90", "--why"),
        ("kernels",),
        ("check", "--target", "sm_90"),
        ("explain", "--why-not-graph", "--target", "sm_90"),
        ("budget",),
        ("buffers", "--target", "sm_90"),
    ],
    ids=" ".join,
)
def test_commands_that_need_no_gpu(args):
    done = without_cuda(args[0], SAMPLE, *args[1:])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_page(tmp_path):
    done = without_cuda("dot", SAMPLE, "--target", "sm_90", "-o", tmp_path / "loop.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "loop.html").stat().st_size


def test_what_is_not_installed_is_missing_and_not_broken():
    done = without_cuda("doctor", "--json", "-")
    found = {f["what"]: f for f in json.loads(done.stdout)["findings"]}
    assert found["NVRTC"]["state"] == "missing"
    assert found["NVRTC"]["fix"]
    assert found["GPU"]["state"] == "missing"
    assert found["cuda run"]["state"] == "missing"


def test_the_backend_that_is_asked_for_says_what_it_needs():
    done = without_cuda("run", SAMPLE, "--backend", "cuda")
    assert done.returncode == 3
    assert "pip install" in done.stderr
