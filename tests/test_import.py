"""`hlo2graph import`: functions of JAX, exported ones, and files, as HLO text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT
from jax import export

import hlo2graph
from hlo2graph.errors import ParseError
from hlo2graph.hlo import TupleShape
from hlo2graph.importers.shapes import read_shapes
from tests import wire
from tests.test_protos import ARGUMENTS, MODULE, X, Y
from tests.test_stablehlo import STABLEHLO

FUNCTIONS = """\
import jax
import jax.numpy as jnp

def scaled(x, n):
    return jnp.tanh(x) * n

@jax.jit
def affine(p, x):
    return p[0] @ x + p[1]

def unused(x, y):
    return y * 2

class Model:
    def step(x):
        return x + 1

def broken(x):
    raise ValueError("not like this")

number = 3
"""


@pytest.fixture
def functions(tmp_path, monkeypatch, request):
    """Put a module of a name of its own into the current folder."""
    name = f"functions_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    return name


def inputs_of(text):
    return [
        (dtype.name, shape) for _, dtype, shape in hlo2graph.compile(text, backend="host").inputs
    ]


@pytest.mark.parametrize(
    ("target", "shapes", "inputs"),
    [
        ("scaled", "f32[4,4],s32[]", [("float32", (4, 4)), ("int32", ())]),
        ("scaled", "f64[4,4], f64[]", [("float64", (4, 4)), ("float64", ())]),
        ("scaled", "bf16[2],bf16[]", [("bfloat16", (2,)), ("bfloat16", ())]),
        ("affine", "(f32[2,3],f32[2]),f32[3]", [("float32", d) for d in ((2, 3), (2,), (3,))]),
        ("unused", "f32[7],f32[1]", [("float32", (7,)), ("float32", (1,))]),
        ("Model.step", "s8[3]", [("int8", (3,))]),
    ],
)
def test_functions_of_jax(cli, functions, target, shapes, inputs):
    code, out, err = cli("import", "--jax", f"{functions}:{target}", "--shapes", shapes)
    assert (code, err) == (0, "")
    assert inputs_of(out) == inputs


def test_a_function_gives_what_jax_gives(cli, functions, tmp_path):
    shapes = "f32[4],s32[]"
    model = tmp_path / "model.hlo"
    cli("import", "--jax", f"{functions}:scaled", "--shapes", shapes, "-o", model)
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    (found,) = hlo2graph.compile(model.read_text(), backend="host")(x, np.int32(3))
    np.testing.assert_allclose(found, np.tanh(x) * 3, rtol=1e-6)


def test_what_is_printed_is_canonical_and_tells_lines_of_the_function_alone(
    cli, functions, tmp_path
):
    model = tmp_path / "model.hlo"
    cli("import", "--jax", f"{functions}:scaled", "--shapes", "f32[4],s32[]", "-o", model)
    assert cli("fmt", "--check", model)[0] == 0
    files = model.read_text().partition("FileNames\n")[2].partition("\n\n")[0]
    assert files == f'1 "{tmp_path / functions}.py"'


@pytest.mark.parametrize(
    ("target", "shapes", "said"),
    [
        ("{}", "f32[]", "--jax takes module:function, not"),
        ("{}:", "f32[]", "--jax takes module:function, not"),
        ("{}:nothing", "f32[]", "has no attribute 'nothing'"),
        ("{}:number", "f32[]", "is no function but int"),
        ("nowhere_at_all:f", "f32[]", "No module named 'nowhere_at_all'"),
        ("{}:scaled", "f32[3]", "cannot be lowered for f32[3]: TypeError"),
        ("{}:scaled", "f32[3],f32[4]", "cannot be lowered for f32[3],f32[4]: TypeError"),
        ("{}:broken", "f32[3]", "ValueError: not like this"),
        ("{}:scaled", "f32[?],f32[]", "f32[?] is no array of one size"),
        ("{}:scaled", "f32[3],token[]", "token[] is no array of one size"),
        ("{}:scaled", "float[3]", "--shapes:1:1: error"),
        ("{}:scaled", "f32[3", "--shapes:1:1: error"),
        ("{}:scaled", "f32[3],", "--shapes:1:7: error"),
        ("{}:scaled", "f32[3],f33[4]", "\n  f32[3],f33[4]\n         ^~~\n"),
    ],
)
def test_what_is_no_function_or_no_shape(cli, functions, target, shapes, said):
    code, out, err = cli("import", "--jax", target.format(functions), "--shapes", shapes)
    assert (code, out) == (2, "")
    assert said in err


def test_shapes():
    found = read_shapes("f32[8,4], s32[] ,(pred[2],(u8[0]))")
    assert [shape.without_layout_text() for shape in found[:2]] == ["f32[8,4]", "s32[]"]
    assert isinstance(found[2], TupleShape)
    assert read_shapes("") == ()
    with pytest.raises(ParseError):
        read_shapes("f32[2]) (")


@pytest.fixture(scope="module")
def open_sizes():
    (size,) = export.symbolic_shape("b")
    described = (
        {"w": jax.ShapeDtypeStruct((3, 2), jnp.float32)},
        jax.ShapeDtypeStruct((size, 3), jnp.float32),
    )
    return export.export(jax.jit(lambda p, x: x @ p["w"]))(*described).serialize()


def test_sizes_of_exported_functions_are_settled(cli, open_sizes, tmp_path):
    path = tmp_path / "model.jax"
    path.write_bytes(open_sizes)
    code, _, err = cli("plan", path)
    assert code == 2
    assert "for arrays of any size" in err
    assert "import FILE --shapes" in err
    code, out, _ = cli("import", path, "--shapes", "f32[3,2],f32[5,3]")
    assert code == 0
    assert inputs_of(out) == [("float32", (3, 2)), ("float32", (5, 3))]
    x, w = np.ones((5, 3), np.float32), np.eye(3, 2, dtype=np.float32)
    np.testing.assert_array_equal(hlo2graph.compile(out, backend="host")(w, x)[0], x @ w)


@pytest.mark.parametrize("shapes", ["f32[5,3]", "f32[3,2],f32[5,4]", "f32[3,2],s32[5,3]"])
def test_shapes_that_do_not_fit_an_exported_function(cli, open_sizes, shapes, tmp_path):
    path = tmp_path / "model.jax"
    path.write_bytes(open_sizes)
    code, _, err = cli("import", path, "--shapes", shapes)
    assert code == 2
    assert f"cannot be lowered for {shapes}" in err


def test_shapes_are_for_exported_functions(cli, open_sizes, tmp_path):
    path = tmp_path / "model.mlir"
    path.write_text(STABLEHLO)
    code, _, err = cli("import", path, "--shapes", "f32[2,3]")
    assert (code, "this is not" in err) == (2, True)
    path.write_bytes(open_sizes[:-100])
    code, _, err = cli("import", path, "--shapes", "f32[3,2],f32[5,3]")
    assert code in (0, 2)


def test_files(cli, tmp_path):
    path, out = tmp_path / "model.mlir", tmp_path / "model.hlo"
    path.write_text(STABLEHLO)
    assert cli("import", path, "-o", out) == (0, "", "")
    assert inputs_of(out.read_text()) == [("float32", (2, 3))]


def test_compiled_files_give_the_module_in_them(cli, tmp_path):
    model, held = tmp_path / "model.hlo", tmp_path / "model.h2g"
    model.write_text("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }\n")
    cli("compile", model, "-o", held)
    code, text, err = cli("import", held)
    assert (code, err) == (0, "")
    assert inputs_of(text) == [("float32", (4,))]


def test_arguments_of_a_snapshot_are_saved_beside_it(cli, tmp_path):
    path, out = tmp_path / "s.pb", tmp_path / "s.hlo"
    path.write_bytes(wire.snapshot(MODULE, *ARGUMENTS))
    code, _, err = cli("import", path, "-o", out)
    assert (code, err) == (0, f"2 arrays in {tmp_path / 's.npz'}\n")
    with np.load(tmp_path / "s.npz") as saved:
        np.testing.assert_array_equal([saved["arg0"], saved["arg1"]], [X, Y])
    code, text, err = cli("import", path)
    assert text.startswith("HloModule add")
    assert "2 arrays left out" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "give one of FILE, --jax and --saved-model"),
        (("a.hlo", "--jax", "m:f"), "give one of"),
        (("a.hlo", "--signature", "s"), "--signature is for --saved-model"),
        (("--saved-model", "/nowhere"), "does not exist"),
        (("--saved-model", "."), "needs -o FILE.hlo"),
        (("nowhere.mlir",), "No such file"),
    ],
)
def test_usage(cli, args, said):
    code, _, err = cli("import", *args)
    assert code == 2
    assert said in err


def test_arrays_and_text_are_two_files(cli, tmp_path, monkeypatch):
    from hlo2graph.cli import import_

    given = import_.Input("x", (ROOT / "samples" / "mlp.hlo").read_text(), True, (np.zeros(3),))
    monkeypatch.setattr(import_, "read_file", lambda _: given)
    code, out, err = cli("import", "x.pb", "-o", tmp_path / "x.npz")
    assert (code, out) == (2, "")
    assert f"the arrays go to {tmp_path / 'x.npz'}; give the text another name" in err
    assert not list(tmp_path.iterdir())


def test_without_tensorflow_it_says_what_to_install(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("hlo2graph.importers.saved_model.find_spec", lambda _: None)
    given = ("import", "--saved-model", tmp_path, "-o", tmp_path / "m.hlo")
    code, _, err = cli(*given)
    assert code == 2
    assert "no SavedModel is here" in err
    (tmp_path / "saved_model.pb").touch()
    code, _, err = cli(*given)
    assert code == 3
    assert "pip install 'hlo2graph[tf]'" in err


def test_without_jax_it_says_what_to_install(cli, monkeypatch):
    monkeypatch.setattr("hlo2graph.importers.jax_function.find_spec", lambda _: None)
    code, _, err = cli("import", "--jax", "m:f")
    assert code == 3
    assert "pip install 'hlo2graph[jax]'" in err
