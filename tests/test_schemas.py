"""What commands print for programs is what the published schemas say, and no more."""

from __future__ import annotations

import copy
import json
import re

import numpy as np
import pytest
from conftest import QUICK, ROOT, SAMPLES
from jsonschema import Draft202012Validator, ValidationError

from hlo2graph.inspect.cuda_session import run_cuda_session
from hlo2graph.inspect.pointers.lab import run_lab
from hlo2graph.inspect.pointers.report import lab_json
from hlo2graph.inspect.report_json import report_json
from hlo2graph.inspect.session import Wishes
from hlo2graph.inspect.timing import Budget
from hlo2graph.schemas import names, schema
from tests.fake_cuda import fake
from tests.placements import PROGRAMS

__all__ = ["fake"]  # a fixture

NANS = """
HloModule nans

ENTRY main {
  x = f32[3] constant({nan, inf, -inf})
  e = f32[0] constant({})
  ROOT t = (f32[3], f32[0]) tuple(x, e)
}
"""


def strict(given):
    """Return a schema that refuses members which `given` does not name."""
    found = copy.deepcopy(given)

    def close(node, *, is_branch=False):
        if isinstance(node, list):
            for part in node:
                close(part)
        if not isinstance(node, dict):
            return
        if "properties" in node and not is_branch:
            node["unevaluatedProperties"] = False
        for key, part in node.items():
            if key == "oneOf":
                for branch in part:
                    close(branch, is_branch=True)
            elif isinstance(part, dict | list):
                close(part)

    close(found)
    return found


def validate(document):
    """Validate a document, or each of a list, by the schema that it names."""
    for part in document if isinstance(document, list) else [document]:
        name = part["schema"]["name"].removeprefix("hlo2graph.")
        Draft202012Validator(strict(schema(name))).validate(part)


def printed(cli, command, *args, code=0):
    found, out, err = cli(command, *args, "--json", "-")
    assert found == code, err
    return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize("name", names())
def test_schemas_are_schemas(name):
    found = schema(name)
    Draft202012Validator.check_schema(found)
    assert found["title"] == f"hlo2graph.{name}"
    assert found["properties"]["schema"]["properties"]["name"] == {"const": f"hlo2graph.{name}"}
    assert "schema" in found["required"]


def test_every_document_has_one():
    said = set()
    for path in (ROOT / "hlo2graph").rglob("*.py"):
        said |= set(re.findall(r'"name": "hlo2graph\.(\w+)", "version": \d+\}\n', path.read_text()))
    assert said == set(names())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.stem)
def test_plans(sample, cli):
    validate(printed(cli, "plan", sample))
    if sample.suffix == ".hlo":
        validate(printed(cli, "plan", sample, "--why", "--target", "sm_90"))


@pytest.mark.parametrize(
    ("command", "sample", "args"),
    [
        ("run", "loop.hlo", QUICK),
        ("run", "order.hlo", ("--duration", "0", "--seed", "3")),
        ("run", "random.hlo", ("--duration", "0", "--reference", "none")),
        ("run", "loop.hlo", (*QUICK, "--profile", "nodes")),
        ("budget", "chains.hlo", ()),
        ("budget", "loop.hlo", ()),
        ("budget", "wide_branches.hlo", ("--target", "host", "--device", "a100")),
        ("buffers", "loop.hlo", ()),
        ("buffers", "copies_must_alias.hlo", ("--target", "sm_90")),
        ("check", "loop.hlo", ("--runs", "1")),
        ("check", "collectives.hlo", ()),
        ("explain", "chains.hlo", ("a", "c0")),
        ("explain", "chains.hlo", ("a", "c0", "--max-buffer-reuse", "-1")),
        ("explain", "chains.hlo", ("--critical-path",)),
        ("explain", "chains.hlo", ("--false-edges", "--max-buffer-reuse", "-1")),
        ("explain", "collectives.hlo", ("--why-not-graph",)),
        ("explain", "loop.hlo", ("--why-not-graph",)),
        ("explain", "chains.hlo", ("--why-not-graph", "--capture", "loops:3")),
    ],
)
def test_reports(command, sample, args, cli):
    validate(printed(cli, command, ROOT / "samples" / sample, *args))


def test_numbers_that_are_none(cli, tmp_path):
    path = tmp_path / "nans.hlo"
    path.write_text(NANS)
    found = printed(cli, "run", path, "--duration", "0")
    validate(found)
    assert found["outputs"][0]["nan"] == 1


def test_several_modules(cli, tmp_path):
    path = tmp_path / "two.hlo"
    path.write_text(f"{NANS}\n// -----\n{NANS}")
    found = printed(cli, "plan", path)
    assert len(found) == 2
    validate(found)


def test_a_proof_that_fails(cli, tmp_path):
    sample = ROOT / "samples" / "halves.thunks"
    path = tmp_path / "broken.thunks"
    text = re.sub("^edge t0 -> t2.*\n", "", cli("plan", sample)[1], flags=re.MULTILINE)
    path.write_text(text)
    found = printed(cli, "check", path, code=1)
    validate(found)
    assert found["findings"]


def test_differences(cli, tmp_path):
    before = ROOT / "samples" / "chains.hlo"
    after = tmp_path / "after.thunks"
    after.write_text(cli("plan", before, "--max-buffer-reuse", "-1")[1])
    validate(printed(cli, "diff", before, after))
    validate(printed(cli, "diff", before, ROOT / "samples" / "mlp.hlo"))
    planned = tmp_path / "planned.thunks"
    planned.write_text(cli("plan", before, "--target", "sm_90")[1])
    validate(printed(cli, "diff", planned, before, "--target", "host"))


def test_graphs_of_xla(cli):
    validate(printed(cli, "xla", ROOT / "samples" / "xla_dump"))


@pytest.mark.parametrize("stage", ["hlo", "thunks", "graph"])
def test_pictures(stage, cli, tmp_path):
    path = tmp_path / "loop.json"
    sample = ROOT / "samples" / "loop.hlo"
    assert cli("dot", sample, "--stage", stage, "--target", "sm_90", "-o", path)[0] == 0
    validate(json.loads(path.read_text()))


def test_what_is_here(cli):
    _, out, _ = cli("doctor", "--json", "-")
    validate(json.loads(out))


def test_the_lab(fake):
    _, exe = fake(PROGRAMS["donated"])
    lab = run_lab(
        exe.plan, [np.ones(64, np.float32)] * 3, moves=40, sets=3, strategies=("auto", "copy")
    )
    validate(json.loads(json.dumps(lab_json(lab))))


@pytest.mark.parametrize("capture", ["all", "-copy"])
def test_a_run_on_a_gpu(capture, fake):
    _, exe = fake(PROGRAMS["copies"], capture=capture)
    wishes = Wishes(budget=Budget(0.0, 0.05, 2, (50, 99.9)), reference="none")
    report, _ = run_cuda_session(exe, [np.ones(64, np.float32)] * 2, wishes, module=None)
    found = json.loads(json.dumps(report_json(report)))
    validate(found)
    assert found["memory"]["instances"] == 1
    assert (found["captured"] is None) is (capture == "all")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda plan: plan["thunks"][0].pop("name"), "'name' is a required property"),
        (lambda plan: plan["edges"][0].update(src="t0"), "'t0' is not of type 'integer'"),
        (lambda plan: plan["schema"].update(version=2), "1 was expected"),
        (lambda plan: plan["edges"][0].update(colour=3), "Unevaluated properties"),
        (lambda plan: plan["thunks"][0].update(kind="nap"), "is not one of"),
    ],
)
def test_what_does_not_fit_is_found(change, says, cli):
    found = printed(cli, "plan", ROOT / "samples" / "loop.hlo", "--target", "host")
    found = found if found["edges"] else printed(cli, "plan", ROOT / "samples" / "chains.hlo")
    change(found)
    with pytest.raises(ValidationError, match=says):
        validate(found)


def test_readers_may_meet_members_that_have_come_since(cli):
    found = printed(cli, "plan", ROOT / "samples" / "chains.hlo")
    found["edges"][0]["colour"] = 3
    Draft202012Validator(schema("plan")).validate(found)
