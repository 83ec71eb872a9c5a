"""The programs that the GPU is measured with, in small: each kernel form against the host."""

from __future__ import annotations

import json
import sys

import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.program.device_figures import DeviceFigures
from tests.emulation import EmulatedExecutable, Kernels
from tests.emulation.plans import choose_for
from tests.fake_cuda import fake
from tests.gpu import forms, suite
from tests.gpu.form_programs import SIZES, programs
from tests.gpu.forms import drawn, line, measured
from tests.ptxas import spilt

__all__ = ["fake"]  # a fixture
SMALL = 400_000  # bytes of the largest array, about


@pytest.mark.slow
@needs_gxx
@pytest.mark.parametrize(("multiprocessors", "index"), [(0, "int"), (132, "int"), (0, "long long")])
def test_programs_agree_with_the_host(monkeypatch, multiprocessors, index):
    """With none of them every loop is wide, and every one across the grain tiled."""
    monkeypatch.setattr(Signature, "index_type", property(lambda _: index))
    figures = DeviceFigures(multiprocessors, 2048, 4.8e12)
    choose_for(figures, monkeypatch)
    texts = {p.name: p.text for p in programs((SMALL,))}
    plans = {name: hlo2graph.plan(text, target="sm_90") for name, text in texts.items()}
    kernels = Kernels(list(plans.values()))
    written = [s.text for plan in plans.values() for s in kernels_of(plan).values()]
    apart = sum("blockIdx.x * 1024 + threadIdx.x" in text for text in written)
    assert (apart > 2) == (multiprocessors == 0)
    for name, plan in plans.items():
        arguments = [drawn(*bound.array_type) for bound in plan.inputs]
        got = EmulatedExecutable(plan, kernels)(*arguments)
        for ours, theirs, bound in zip(
            got, wanted(texts[name], arguments), plan.outputs, strict=True
        ):
            theirs = theirs.astype(ours.dtype)
            found = compare(ours, theirs, tolerance_for(bound.shape.dtype), name)
            assert found.ok, f"{name}: {found}"


def wanted(text: str, arguments):
    """Return the host's results, in float32 where the text has bfloat16: see TOLERANCES."""
    plan = hlo2graph.plan(text.replace("bf16[", "f32["), target="host")
    types = [bound.shape.dtype.numpy for bound in plan.inputs]
    return HostExecutable(plan)(*(a.astype(t) for a, t in zip(arguments, types, strict=True)))


SPILT = {  # bytes that are known, and what they were measured with, as part of a copy
    "transpose odd batches bf16": 40,  # 0.95 and more
    "layer norm of 50001": 72,  # 0.75, and 0.64 in the form that spilt none
    "log softmax of 50257 bf16": 28,  # on sm_80, which is not measured; none on sm_90
}


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nothing_is_spilt(arch):
    for program in programs(SIZES[:1]):
        most = next((SPILT[name] for name in SPILT if program.name.startswith(name)), 0)
        for source in kernels_of(hlo2graph.plan(program.text, target=arch)).values():
            assert spilt(source.text, arch) <= most, program.name


def test_bytes_count_each_array_once():
    (program,) = (p for p in programs((60_000,)) if p.name.startswith("add a row"))
    assert program.bytes == 2 * 60_000 + 1500 * 4


def test_figures_of_a_program(fake):
    (program,) = (p for p in programs((60_000,)) if p.name.startswith("loop of 1 f32"))
    _, executable = fake(program.text)
    row = measured(program, lambda: executable, rounds=3)
    assert "why" not in row, row["why"]
    assert row["kernels"] == executable.graph.nodes == 1
    assert len(row["seconds"]) == len(row["copy_seconds"]) == 3
    assert line(row).startswith("loop of 1 f32")


def test_what_is_stalest_is_measured_first_and_the_rest_kept(fake, monkeypatch, tmp_path):
    small = [p for p in programs((60_000,)) if p.name.startswith("loop of 1")]
    names = [program.name for program in small]
    order: list[str] = []

    def built(chosen, arch):
        for program in chosen:
            order.append(program.name)
            yield program, lambda program=program: fake(program.text)[1]

    def run(commit: str, *options: str) -> list[dict]:
        monkeypatch.setattr(suite, "describe", lambda _: {"commit": commit, "arch": "sm_90"})
        monkeypatch.setattr(sys, "argv", ["forms", "--out", str(out), "--rounds", "3", *options])
        order.clear()
        assert forms.main() == 0
        return json.loads(out.read_text())["forms"]

    out = tmp_path / "forms.json"
    monkeypatch.setattr(forms, "programs", lambda: small)
    monkeypatch.setattr(forms, "built", built)
    (row,) = run("a", "--only", "bf16")
    assert "why" not in row
    rows = run("b", "--within", "0")
    assert order[:1] == names[:1], "the first of those never measured"
    assert rows == [row], "no time, nothing measured"
    rows = run("b", "--within", "100")
    assert order == [names[0], names[2], names[1]]
    assert [row["form"] for row in rows] == names
    (row, *_) = rows = run("c", "--only", "u8")
    assert [row.get("earlier") for row in rows] == ["b", "b", None]
