"""A run with stand-ins for elided constants: the reference has the same ones."""

from __future__ import annotations

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.elided import fill_module
from hlo2graph.inspect.reference import host_results

# One constant is read as it is and under another shape, by several kernels; one is dead.
TEXT = """HloModule m

ENTRY main {
  x = f32[6,4] parameter(0)
  dead = f32[6,4] constant({...})
  w = f32[6,4] constant({...})
  v = f32[24] constant({...})
  flat = f32[24] reshape(w)
  both = f32[24] add(flat, v)
  z = f32[6,4] multiply(x, w)
  d = f32[6,6] dot(z, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT r = (f32[24], f32[6,6], f32[6,4]) tuple(both, d, z)
}
"""
ADD = "HloModule a\n\nENTRY main {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] add(x, x)\n}\n"
HOW = pytest.mark.parametrize("how", ["zeros", "random:3"])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return path


@HOW
@pytest.mark.parametrize("target", ["host", "sm_90"])
def test_plan_and_module_have_the_same_values(how, target):
    x = np.ones((6, 4), np.float32)
    got = h2g.compile(TEXT, "host", elided=how, target=target)(x)
    want = host_results(fill_module(h2g.parse(TEXT), how), [x])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert how == "zeros" or not np.array_equal(got[0], 2 * got[2].reshape(-1))


@HOW
def test_it_is_compared_with_the_module(cli, file, how):
    for text in (TEXT, ADD):
        file.write_text(text)
        code, out, err = cli("run", file, "--backend=host", "--duration=0", "--elided", how)
        assert (code, err) == (0, "")
        assert "equal to the program evaluated as written" in out
        assert f"elided {how}" in out


@HOW
def test_so_it_is_from_a_compiled_file(cli, file, how):
    compiled = file.with_suffix(".h2g")
    assert cli("compile", file, "--target=host", "--elided", how, "-o", compiled)[0] == 0
    code, out, _ = cli("run", compiled, "--backend=host", "--duration=0")
    assert code == 0
    assert "equal to the program evaluated as written" in out
    h2g.save(h2g.plan(TEXT, target="host"), compiled, module=h2g.parse(TEXT))
    code, out, _ = cli("run", compiled, "--backend=host", "--duration=0", "--elided", how)
    assert code == 0
    assert "equal to the program evaluated as written" in out


def test_values_that_differ_are_seen(cli, file, monkeypatch):
    monkeypatch.setattr(
        "hlo2graph.backends.elided.fill_module", lambda m, _: fill_module(m, "zeros")
    )
    assert cli("run", file, "--backend=host", "--duration=0", "--elided=random:3")[0] == 1


@pytest.mark.slow
def test_xla_is_given_them_too(cli, file):
    given = "--backend=host", "--duration=0", "--elided=random:3", "--reference=xla"
    code, out, err = cli("run", file, *given)
    assert (code, err) == (0, "")
    assert "equal to XLA:CPU" in out


def test_the_error_shows_the_line(cli, tmp_path):
    path = tmp_path / "m.hlo"
    held = "  c = f32[4] constant({...})\n  ROOT"
    path.write_text(ADD.replace("add(x, x)", "add(x, c)").replace("  ROOT", held))
    code, _, err = cli("run", path, "--backend", "host")
    assert code == 2
    assert f"{path}:5:23: error: the text elides the value of constant c" in err
    assert "\n    c = f32[4] constant({...})\n                        ^~~~~\n" in err
