"""Every sample at every stage, as text: `pytest -k softmax-plan` is one of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from conftest import GOLDEN, REFUSED, SAMPLES

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.inspect.dot import dot
from hlo2graph.inspect.why import why_text
from hlo2graph.pipeline import why
from hlo2graph.program.plan import Plan

STAGES = {
    ".hlo": ("module", "program", "plan", "dot", "cuda", "why"),
    ".thunks": ("plan", "dot", "cuda"),
}
CASES = [
    (sample, stage)
    for sample in SAMPLES
    for stage in STAGES[sample.suffix]
    if stage != "cuda" or sample.stem not in REFUSED
]


@cache
def texts(sample: Path) -> dict[str, str | None]:
    """Return a sample's text at every stage, planned for the host."""
    seen: dict[str, str] = {}
    target = {"target": "host"} if sample.suffix == ".hlo" else {}
    plan = hlo2graph.plan(
        sample.read_text(), filename=sample.name, observe=seen.__setitem__, **target
    )
    module = {}
    if target:
        module = {"module": seen["verify"], "program": seen["place_copies"]}
        module["why"] = why_text(why(sample.read_text(), target="sm_90"))
    return {**module, "plan": seen["plan"], "dot": dot(plan), "cuda": cuda_text(sample, plan)}


def cuda_text(sample: Path, plan: Plan) -> str | None:
    """Return the kernels of a sample that has any: each launch, then its text."""
    if sample.stem in REFUSED:
        return None
    if sample.suffix == ".hlo":
        plan = hlo2graph.plan(sample.read_text(), target="sm_90", fuse="none")
    kernels = kernels_of(plan).values()
    return "\n".join(f"// <<<{k.grid[0]}, {k.threads}>>>\n{k.text}" for k in kernels)


def name(sample: Path, stage: str) -> str:
    return f"{sample.stem}/{stage}.txt"


@pytest.mark.parametrize(("sample", "stage"), CASES, ids=[f"{s.stem}-{t}" for s, t in CASES])
def test_stage(sample, stage, golden):
    golden(name(sample, stage), texts(sample)[stage])


def test_no_two_samples_share_goldens():
    assert len({sample.stem for sample in SAMPLES}) == len(SAMPLES)


def test_no_golden_is_an_orphan(golden):
    wanted = {GOLDEN / name(*case) for case in CASES}
    for path in sorted(GOLDEN.rglob("*")):
        if path.is_file() and path not in wanted:
            golden(path.relative_to(GOLDEN).as_posix(), None)


def test_golden_fails_on_a_difference(golden, pytestconfig):
    if pytestconfig.getoption("--update-golden"):
        pytest.skip("would write")
    sample = SAMPLES[0]
    with pytest.raises(pytest.fail.Exception, match="run `make golden`"):
        golden(name(sample, "plan"), "something else\n")
    with pytest.raises(pytest.fail.Exception, match="missing"):
        golden("no_such_sample/plan.txt", "text\n")
    with pytest.raises(pytest.fail.Exception, match="belongs to no sample"):
        golden(name(sample, "plan"), None)
