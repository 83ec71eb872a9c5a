"""What is installed works from any folder: a wheel elsewhere, and the tree itself."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

import hlo2graph

SAMPLE = ROOT / "samples" / "softmax.hlo"


def run(*command: object, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_wheel_holds_what_it_needs_and_no_more(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        "grammars/hlo.lark",
        "grammars/thunks.lark",
        "py.typed",
        "cli/main.py",
        "inspect/page/page.html",
        "schemas/plan.json",
    ):
        assert f"hlo2graph/{needed}" in names
    assert f"hlo2graph-{hlo2graph.__version__}.dist-info/licenses/LICENSE" in names
    assert all(name.startswith(("hlo2graph/", "hlo2graph-")) for name in names)


@pytest.mark.slow
def test_wheel_works_elsewhere(wheel, tmp_path):
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=tmp_path)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    # The libraries come from this environment; a path in PYTHONPATH does not bring its .pth files,
    # so that the package itself can only be the installed one.
    libraries = {"PYTHONPATH": sysconfig.get_path("purelib")}
    where = run(
        python, "-c", "import hlo2graph; print(hlo2graph.__file__)", cwd=tmp_path, **libraries
    )
    assert Path(where.strip()).is_relative_to(home)
    command = home / "bin" / "hlo2graph"
    plan = run(command, "plan", SAMPLE, cwd=tmp_path, **libraries)
    assert plan.startswith("ThunkSequence softmax")
    (tmp_path / "plan.thunks").write_text(plan)
    assert run(command, "plan", "plan.thunks", cwd=tmp_path, **libraries) == plan


def test_tree_works_from_any_folder(tmp_path):
    assert Path(hlo2graph.__file__).is_relative_to(ROOT)
    plan = run(sys.executable, "-m", "hlo2graph", "plan", SAMPLE, cwd=tmp_path)
    assert plan.startswith("ThunkSequence softmax")
