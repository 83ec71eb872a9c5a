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


def test_tables_are_as_measured():
    assert tables.renewed(tables.README.read_text()) == tables.README.read_text(), (
        "run python -m tests.gpu.tables"
    )
