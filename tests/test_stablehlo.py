"""StableHLO and MHLO, as text and as bytecode, wherever HLO text is taken."""

from __future__ import annotations

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from hlo2graph.importers import to_hlo
from tests.conftest import ROOT

STABLEHLO = """\
// RUN: nothing
module @scaled attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %half = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %1 = stablehlo.multiply %x, %0 : tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
}
"""
FORMS = {
    "text": STABLEHLO,
    "bare": STABLEHLO[STABLEHLO.index("  func.func") :].rsplit("}\n", 1)[0],
    "mhlo": """\
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %half = mhlo.constant dense<5.000000e-01> : tensor<2x3xf32>
  %1 = mhlo.multiply %x, %half : tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}
""",
    "generic": """\
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<2x3xf32>) -> tensor<2x3xf32>, sym_name = "main"}> ({
  ^bb0(%x: tensor<2x3xf32>):
    %half = "stablehlo.constant"() <{value = dense<0.5> : tensor<2x3xf32>}> : () -> tensor<2x3xf32>
    %1 = "stablehlo.multiply"(%x, %half)
      : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%1) : (tensor<2x3xf32>) -> ()
  }) : () -> ()
}) : () -> ()
""",
    "located": "#loc = loc(unknown)\n" + STABLEHLO,
}


def loaded(path):
    with np.load(path) as arrays:
        return arrays["out0"]


RESOURCES = """\
module {
  func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xi1>, tensor<2xi64>) {
    %half = stablehlo.constant dense_resource<half_of.it> : tensor<2x3xf32>
    %p = stablehlo.constant dense<[true, false]> : tensor<2xi1>
    %n = stablehlo.constant dense_resource<"a name"> : tensor<2xi64>
    %1 = stablehlo.multiply %x, %half : tensor<2x3xf32>
    return %1, %p, %n : tensor<2x3xf32>, tensor<2xi1>, tensor<2xi64>
  }
}

{-#
  dialect_resources: {
    builtin: {
      half_of.it: "0x040000000000003F0000003F0000003F0000003F0000003F0000003F",
      "a name": "0x080000000100000000000000FEFFFFFFFFFFFFFF"
    }
  }
#-}
"""


def halved(x):
    return x * 0.5


@pytest.fixture(scope="module")
def exported():
    return export.export(jax.jit(halved))(jax.ShapeDtypeStruct((2, 3), jnp.float32))


def results_of(cli, path, tmp_path):
    """Run a program on known inputs; return its first result."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "x.npz", arg0=x)
    arrays = ("--inputs", tmp_path / "x.npz", "--save-outputs", tmp_path / "y.npz")
    code, _, err = cli("run", path, "--duration", "0", *arrays)
    assert (code, err) == (0, "")
    return loaded(tmp_path / "y.npz"), x


@pytest.mark.parametrize("form", FORMS)
def test_runs_text(cli, form, tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(FORMS[form])
    found, x = results_of(cli, path, tmp_path)
    np.testing.assert_array_equal(found, x / 2)


def test_runs_bytecode(cli, exported, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(exported.mlir_module_serialized)
    found, x = results_of(cli, path, tmp_path)
    np.testing.assert_array_equal(found, x / 2)


def test_runs_what_jax_exports(cli, exported, tmp_path):
    path = tmp_path / "model.jax"
    path.write_bytes(exported.serialize())
    found, x = results_of(cli, path, tmp_path)
    np.testing.assert_array_equal(found, x / 2)


def test_jax_programs_keep_their_lines_and_large_constants(tmp_path):
    table = np.random.default_rng(0).random(500).astype(np.float32)
    module = export.export(jax.jit(lambda x: x + table))(jax.ShapeDtypeStruct((500,), jnp.float32))
    imported = to_hlo(module.mlir_module_serialized)
    assert __file__ in imported.text
    assert "{...}" not in imported.text


@pytest.mark.parametrize(
    "command", ["plan", "dot", "buffers", "budget", "check", "kernels", "fmt", "explain"]
)
def test_every_command_takes_it(cli, command, tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(STABLEHLO)
    flags = ("--critical-path",) if command == "explain" else ()
    assert cli(command, path, *flags)[0] == 0


def test_the_sample_agrees_with_xla(cli):
    sample = ROOT / "samples" / "stablehlo.mlir"
    code, out, err = cli("run", sample, "--duration", "0", "--reference", "xla")
    assert (code, err) == (0, "")
    assert "equal to XLA" in out


def test_instructions_know_their_lines(cli, tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(STABLEHLO)
    plan = cli("plan", path)[1]
    assert f'source_file="{path}" source_line=6' in plan


def test_constants_behind_the_module(cli, tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(RESOURCES)
    found, x = results_of(cli, path, tmp_path)
    np.testing.assert_array_equal(found, x / 2)
    with np.load(tmp_path / "y.npz") as arrays:
        np.testing.assert_array_equal(arrays["out2"], [1, -2])
    path.write_text(RESOURCES.replace("half_of.it:", "another:"))
    code, _, err = cli("plan", path)
    assert (code, err.split(" ")[0]) == (2, f"{path}:3:13:")


def test_takes_several_modules(cli, tmp_path):
    path = tmp_path / "two.mlir"
    path.write_text(f"{STABLEHLO}// -----\n{FORMS['mhlo']}")
    code, out, _ = cli("fmt", path)
    assert code == 0
    assert out.count("HloModule") == 2
    path.write_text(f"{STABLEHLO}// -----\nmodule {{\n  bad\n}}\n")
    code, _, err = cli("fmt", path)
    assert (code, err.split(" ")[0]) == (2, f"{path}:12:3:")


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        ("stablehlo.multiply", "stablehlo.mutliply", "6:10", "custom op 'stablehlo.mutliply'"),
        ("return %1", "return %2", "7:12", "use of undeclared SSA value name"),
        ("@main", "@other", "2:1", "conversion requires module with `main` function"),
        ("stablehlo.multiply %x", "arith.mulf %x", "6:10", "unsupported op for export to XLA"),
        ("    return %1 : tensor<2x3xf32>\n  }\n}\n", "", "6:53", "expected operation name"),
    ],
)
def test_errors_have_their_place(cli, old, new, place, said, tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(STABLEHLO.replace(old, new))
    code, out, err = cli("plan", path)
    assert (code, out) == (2, "")
    assert said in err
    assert err.startswith(f"{path}:{place}: error: ")


def test_broken_bytecode_is_refused(cli, exported, tmp_path):
    path = tmp_path / "model"
    path.write_bytes(exported.mlir_module_serialized[:-200])
    code, _, err = cli("plan", path)
    assert code == 2
    assert err.startswith(f"error: {path}: this is StableHLO, which cannot be read: ")
    path.write_bytes(exported.serialize()[:1000])
    assert cli("plan", path)[0] == 2


def test_open_sizes_are_refused(cli, tmp_path):
    (size,) = export.symbolic_shape("b")
    module = export.export(jax.jit(halved))(jax.ShapeDtypeStruct((size, 3), jnp.float32))
    path = tmp_path / "model"
    path.write_bytes(module.mlir_module_serialized)
    code, _, err = cli("plan", path)
    assert code == 2
    assert "arrays of any size (tensor<?x3xf32>); HLO has sizes: write them" in err
    assert "--shapes" not in err
    path = tmp_path / "model.mlir"
    path.write_text(module.mlir_module(), encoding="utf-8")
    _, _, err = cli("plan", path)
    line = 1 + module.mlir_module().split("tensor<?x3xf32>")[0].count("\n")
    assert err.startswith(f"{path}:{line}:")
    assert "arrays of any size" in err


def test_a_converter_that_dies_is_an_error(cli, tmp_path, monkeypatch):
    dying = tmp_path / "dies.py"
    dying.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGABRT)")
    monkeypatch.setattr("hlo2graph.importers.worker.__file__", str(dying))
    path = tmp_path / "model.mlir"
    path.write_text(STABLEHLO)
    code, _, err = cli("plan", path)
    assert code == 2
    assert "jaxlib's converter died of it (signal 6)" in err


def test_without_jaxlib_it_says_what_to_do(cli, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "hlo2graph.importers.convert.find_spec",
        lambda name: None if name == "jaxlib" else find(name),
    )
    path = tmp_path / "model.mlir"
    path.write_text(STABLEHLO)
    code, _, err = cli("plan", path)
    assert code == 3
    assert "this is StableHLO, of which jaxlib makes HLO text" in err
    assert "pip install 'hlo2graph[jax]'" in err
    assert "lowered.as_text('hlo')" in err


def test_it_is_not_formatted_in_place(cli, tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(STABLEHLO)
    for flag in ("--in-place", "--check"):
        code, _, err = cli("fmt", path, flag)
        assert code == 2
        assert "is no HLO text" in err
    assert path.read_text() == STABLEHLO


def test_a_saved_model_is_named(cli, tmp_path):
    path = tmp_path / "saved_model.pb"
    path.write_bytes(b"\x08\x01\x12\x04\x0a\x00\x12\x00")
    code, _, err = cli("plan", path)
    assert code == 2
    assert "hlo2graph import --saved-model" in err
