"""The programs that the GPU is measured with, in small: each kernel form against the host."""

from __future__ import annotations

from dataclasses import replace

import pytest
from needs import needs_gxx

import hlo2graph
from hlo2graph.backends.cuda import kernels as kernels_module
from hlo2graph.backends.cuda.kernels import kernels_of
from hlo2graph.backends.cuda.source import Signature
from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.program.device_figures import DeviceFigures
from tests.emulation import EmulatedExecutable, Kernels
from tests.fake_cuda import fake
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
    figures = DeviceFigures(multiprocessors, 2048, 227 * 1024, 4.8e12)
    monkeypatch.setattr(kernels_module, "figures_for", lambda _: figures)
    plans = {p.name: hlo2graph.plan(p.text, target="sm_90") for p in programs((SMALL,))}
    kernels = Kernels(list(plans.values()))
    texts = [s.text for plan in plans.values() for s in kernels_of(plan).values()]
    apart = sum("blockIdx.x * 1024 + threadIdx.x" in text for text in texts)
    assert (apart > 2) == (multiprocessors == 0)
    for name, plan in plans.items():
        arguments = [drawn(*bound.array_type) for bound in plan.inputs]
        got = EmulatedExecutable(plan, kernels)(*arguments)
        want = HostExecutable(plan)(*arguments)
        for ours, theirs, bound in zip(got, want, plan.outputs, strict=True):
            tolerance = tolerance_for(bound.shape.dtype)
            if "bf16" in name:  # the host rounds after every instruction
                tolerance = replace(tolerance, absolute=0.05)
            found = compare(ours, theirs, tolerance, name)
            assert found.ok, f"{name}: {found}"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nothing_is_spilt(arch):
    for program in programs(SIZES[:1]):
        for source in kernels_of(hlo2graph.plan(program.text, target=arch)).values():
            assert not spilt(source.text, arch), program.name


def test_bytes_count_each_array_once():
    (program,) = (p for p in programs((60_000,)) if p.name.startswith("add a row"))
    assert program.bytes == 2 * 60_000 + 1500 * 4


def test_figures_of_a_program(fake, monkeypatch):
    (program,) = (p for p in programs((60_000,)) if p.name.startswith("loop of 1 f32"))
    _, executable = fake(program.text)
    monkeypatch.setattr(hlo2graph, "compile", lambda *_: executable)
    row = measured(program, rounds=3)
    assert "why" not in row, row["why"]
    assert row["kernels"] == executable.graph.nodes == 1
    assert len(row["seconds"]) == len(row["copy_seconds"]) == 3
    assert line(row).startswith("loop of 1 f32")
