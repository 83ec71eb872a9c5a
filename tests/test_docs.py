"""What is documented is there, and what is there is documented."""

from __future__ import annotations

import re

import click
import numpy as np
import pytest
import readme_output
from conftest import ROOT, SAMPLES

import hlo2graph
from hlo2graph.cli.main import COMMANDS, group
from hlo2graph.hlo import Module
from hlo2graph.ops import OPS
from hlo2graph.program.edges import RANK
from hlo2graph.program.thunks import Hazard
from tests.fake_cuda import fake
from tests.gpu import tables

__all__ = ["fake"]  # a fixture

README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
MLP = (ROOT / "samples" / "mlp.hlo").read_text()


def command(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_is_in_the_readme(name):
    assert command(name).help
    assert f"hlo2graph {name}" in README
    for option in command(name).params:
        if isinstance(option, click.Option):
            assert option.help, f"{name} {option.opts}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_only_flags_that_exist(name):
    flags = {flag for option in command(name).params for flag in option.opts}
    known = {flag for c in COMMANDS for option in command(c).params for flag in option.opts}
    examples = (command(name).help or "").partition("Examples:")[2]
    for line in examples.splitlines():
        mine = flags if f"hlo2graph {name} " in line and "|" not in line else known
        assert set(re.findall(r"--[a-z-]+", line)) <= mine


def test_readme_names_only_commands_and_flags_that_exist():
    known = {flag for c in COMMANDS for option in command(c).params for flag in option.opts}
    shown = "\n".join(re.findall(r"^ *hlo2graph .*$|`hlo2graph [^`]*`", README, re.MULTILINE))
    assert set(re.findall(r"hlo2graph ([a-z]+)", shown)) <= set(COMMANDS)
    assert set(re.findall(r"--[a-z-]+", shown)) <= known | {"--help"}


def test_readme_lists_all_hazards_in_the_order_in_which_they_are_taken():
    rows = re.findall(r"^\| `(\w+)` \| [a-z]", README.partition("| hazard |")[2], re.MULTILINE)
    assert rows == sorted(Hazard, key=RANK.__getitem__)


def test_readme_shows_what_the_commands_print():
    assert readme_output.renewed(README) == README, "run python tests/readme_output.py"


def test_readme_python_runs():
    code, *_ = PYTHON
    names = {"text": MLP}
    exec(compile(code, "README.md", "exec"), names)
    (out,) = names["results"]
    assert out.shape == (8, 4)


def test_readme_python_for_a_gpu_runs(fake):
    fake(MLP, fuse="default")
    _, code, _ = PYTHON
    module = hlo2graph.parse(MLP)
    arrays = [np.ones(s, d) for _, d, s in hlo2graph.compile(module, "host").inputs]
    names = {"module": module, "arrays": arrays, "h2g": hlo2graph, "np": np}
    exec(compile(code, "README.md", "exec"), names)
    (want,) = hlo2graph.compile(module, "host")(*arrays)
    assert np.allclose(names["first"], want)


@pytest.mark.filterwarnings("ignore:step is run by NumPy")
def test_readme_python_for_jax_runs():
    *_, code = PYTHON
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    x, w = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    assert np.allclose(names["step"](x, w), 8 * np.tanh(3))


def test_readme_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_changelog_has_this_version():
    assert f"## [{hlo2graph.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.name)
def test_every_sample_begins_with_its_idea(sample):
    assert re.match(r"// \S.{20,}", sample.read_text())


def opcodes(module: Module) -> set[str]:
    return {i.opcode for c in module.computations.values() for i in c.instructions}


def test_every_opcode_is_in_a_sample():
    seen = set()
    for sample in SAMPLES:
        if sample.suffix == ".hlo":
            seen |= opcodes(hlo2graph.parse(sample.read_text(), sample.name))
    assert sorted(OPS.keys() - seen) == []


@pytest.mark.parametrize("is_marked", [False, True])
def test_headings_say_which_way_a_ratio_goes_and_marks_what_they_mean(is_marked):
    """Figures that are told apart only by the heading: twice as fast, four times as long."""
    mode = {name: {"device": 1e-6} for name in ("serial", "chain", "graph")}
    row = {"program": "p", "status": "ok", "fuse": "none", "nodes": 1, "width": 1, "modes": mode}
    row["beside_best"] = ["chain", 2.0, 1.9, 2.1]
    form = {"form": "loop 400 MB", "kernels": 1, "bandwidth": 1e9, "part": [1.5], "under": False}
    form |= {"target": None}
    if is_marked:
        row["earlier"] = form["earlier"] = "0000000"
        form |= {"under": True, "target": 2.0}
    text = tables.modes([row])
    assert "| speed-up over the better |" in text
    assert "the better of stream and chain over the\ngraph's" in text
    assert "| 2.00x (1.90 to 2.10) |" in text
    listed = tables.forms({"forms": [form]})
    assert ("| loop* | 1 | 1 | 1.50 under | 2.0 |" in listed) is is_marked
    assert ("| loop | 1 | 1 | 1.50 | - |" in listed) is not is_marked
    for table in (text, listed):
        assert ("Rows with * are of an earlier commit." in table) is is_marked
    run = {"latency": 2e-6, "throughput": 2e-6}
    runs = dict.fromkeys((tables.OURS, "hlo2graph none", *tables.THEIRS), run)
    runs[tables.OURS] = {"latency": 1e-6, "throughput": 1e-6}
    where = {"device": "d", "driver": "1", "jax": "1", "date": "2026-01-01"}
    beside = tables.beside_xla({"environment": where, "programs": [{"program": "p", "runs": runs}]})
    assert "| hlo2graph / fastest XLA |" in beside
    assert "| 0.50 / 0.50 |" in beside


def test_tables_are_as_measured():
    assert tables.renewed(tables.README.read_text()) == tables.README.read_text(), (
        "run python -m tests.gpu.tables"
    )
