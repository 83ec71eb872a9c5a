"""What XLA is given as the reference: bitcasts, which it takes from its own passes, are moves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.inspect.reference import host_results
from hlo2graph.inspect.xla import _as_xla_takes_it

BITCASTS = [
    ("f32[2,3,4]", "f32[6,4]{1,0}"),
    ("f32[2,3,4]{2,1,0}", "f32[24]{0}"),
    ("f32[2,3]{0,1}", "f32[3,2]{1,0}"),
    ("f32[2,3]{1,0}", "f32[3,2]{0,1}"),
    ("f32[2,3,4]{0,2,1}", "f32[6,4]{0,1}"),
    ("f32[1]{0}", "f32[]"),
    ("f32[2,3]{0,1}", "s32[6]{0}"),
    ("f32[]", "u32[]"),
]


def program(source: str, target: str) -> h2g.Module:
    return h2g.parse(
        "HloModule m, is_scheduled=true\n\n"
        f"f {{\n  p = {source} parameter(0)\n  n = {source} negate(p)\n"
        f"  ROOT b = {target} bitcast(n)\n}}\n\n"
        f"ENTRY main {{\n  x = {source} parameter(0)\n"
        f"  f.1 = {target} fusion(x), kind=kLoop, calls=f\n"
        f"  ROOT y = {target} add(f.1, f.1)\n}}\n"
    )


@pytest.mark.parametrize(("source", "target"), BITCASTS)
def test_elements_move_as_the_bitcast_shows_them(source, target):
    module = program(source, target)
    given = h2g.parse(str(_as_xla_takes_it(module)))
    (leaf,) = module.entry.parameters[0].shape.leaves()
    x = np.arange(leaf.elements, dtype=np.float32).reshape(leaf.dims)
    opcodes = {i.opcode for c in given.computations.values() for i in c.instructions}
    assert opcodes.isdisjoint({"bitcast", "fusion"})
    np.testing.assert_array_equal(host_results(given, [x])[0], host_results(module, [x])[0])


def test_a_bitcast_to_a_type_of_another_size_stays():
    module = program("f32[4]", "s16[8]")
    assert "bitcast" in {i.opcode for i in _as_xla_takes_it(module).computations["f"].instructions}


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [BITCASTS[0], BITCASTS[4]])
def test_xla_runs_what_it_is_given(cli, tmp_path, source, target):
    path = tmp_path / "m.hlo"
    path.write_text(str(program(source, target)))
    code, out, err = cli("run", path, "--backend=host", "--duration=0", "--reference=xla")
    assert (code, err) == (0, "")
    assert "equal to XLA:CPU" in out


@pytest.mark.slow
def test_xla_runs_the_linear_algebra_that_jax_calls(cli, tmp_path):
    path = tmp_path / "m.hlo"
    lowered = jax.jit(jnp.linalg.eigvalsh).lower(jax.ShapeDtypeStruct((5, 5), jnp.float32))
    path.write_text(lowered.as_text("hlo"))
    code, out, err = cli("run", path, "--backend=host", "--duration=0", "--reference=xla")
    assert (code, err) == (0, "")
    assert "equal to XLA:CPU" in out
