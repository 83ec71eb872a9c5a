"""The commands about CUDA that need no GPU."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError

import pytest

from hlo2graph.inspect import doctor

TEXT = """
HloModule pair
ENTRY main {
  x = f32[300] parameter(0)
  y = f32[300] multiply(x, x)
  ROOT z = f32[300] exponential(y)
}
"""


@pytest.fixture
def pair(tmp_path):
    path = tmp_path / "pair.hlo"
    path.write_text(TEXT)
    return path


def test_kernels_prints_cuda(cli, pair):
    code, out, _ = cli("kernels", pair, "--fuse", "none")
    assert code == 0
    assert out.startswith('#include "hlo2graph.cuh"\n')
    assert "// 2 blocks of 256 threads\n" in out
    assert "\nhlo_y(" in out
    assert "\nhlo_z(" in out


def test_kernels_are_the_same_each_time(cli, pair):
    assert cli("kernels", pair) == cli("kernels", pair)


def test_ptx_is_for_the_architecture_asked_for(cli, pair):
    code, out, _ = cli("kernels", pair, "--ptx", "--arch", "sm_80")
    assert code == 0
    assert ".target sm_80" in out


def test_cubin_goes_to_a_file(cli, pair, tmp_path):
    target = tmp_path / "pair.cubin"
    assert cli("kernels", pair, "--cubin", "-o", target)[0] == 0
    assert target.read_bytes().startswith(b"\x7fELF")


def test_an_architecture_must_be_one(cli, pair):
    code, _, err = cli("kernels", pair, "--ptx", "--arch", "h100")
    assert code == 2
    assert "'h100' is no architecture" in err


def test_kernels_of_a_sequence_that_is_planned(cli, pair, tmp_path):
    path = tmp_path / "p.thunks"
    assert cli("plan", pair, "--target", "sm_90", "-o", path)[0] == 0
    code, out, err = cli("kernels", path)
    assert (code, err) == (0, "")
    assert out == cli("kernels", pair)[1]
    code, _, err = cli("kernels", path, "--target", "sm_90")
    assert code == 2
    assert "--target (in Python target=): a thunk sequence is planned already" in err


def test_kernels_of_what_cuda_cannot_run(cli, tmp_path):
    path = tmp_path / "sum.hlo"
    path.write_text(
        "HloModule s, replica_count=2\n"
        "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }\n"
        "ENTRY main { x = f32[8] parameter(0)\n"
        "ROOT y = f32[4] reduce-scatter(x), replica_groups={{0,1}}, dimensions={0}, "
        "to_apply=sum }\n"
    )
    code, _, err = cli("kernels", path)
    assert code == 2
    assert "cuda cannot run" in err
    assert "reduce-scatter" in err


def test_doctor_says_what_is_missing(cli, monkeypatch):
    gone = doctor.Finding("driver", doctor.MISSING, "no libcuda.so.1", "install one")
    monkeypatch.setattr(doctor, "_driver", lambda: gone)
    code, out, _ = cli("doctor")
    assert code == 0
    assert "missing  no libcuda.so.1" in out
    assert "-> install one" in out
    assert "Programs run on the host here" in out
    assert (
        "nothing but `run --backend cuda`, `pointers`, `dot --driver` and compiled plans for one."
        in out
    )


def test_doctor_fails_for_what_is_broken(cli, monkeypatch):
    def driver():
        raise RuntimeError("torn")

    monkeypatch.setattr(doctor, "_driver", driver)
    code, out, _ = cli("doctor")
    assert code == 1
    assert "broken   RuntimeError: torn" in out


@pytest.mark.parametrize("extra", ["cuda", "blas", "jax", "tf", "draw"])
def test_doctor_names_every_extra(cli, monkeypatch, extra):
    def none(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", none)
    code, out, _ = cli("doctor")
    assert code in (0, 1)
    assert f"pip install 'hlo2graph[{extra}]'" in out


def test_doctor_says_that_graphviz_is_a_program(cli, monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda _: "1.0")
    monkeypatch.setattr(doctor, "which", lambda _: None)
    assert "Graphviz       missing  its program dot is not installed" in cli("doctor")[1]


def test_doctor_as_json(cli):
    code, out, _ = cli("doctor", "--json", "-")
    assert code in (0, 1)
    assert {f["what"] for f in json.loads(out)["findings"]} >= {
        "host",
        "cuda-bindings",
        "NVRTC",
        "driver",
    }
