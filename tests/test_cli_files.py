"""Files that commands read and write: each mistake is the same one in every command."""

from __future__ import annotations

import io
import json
import os
import sys
from types import SimpleNamespace

import pytest
from conftest import ADD, QUICK, ROOT

from hlo2graph.cli.files import SEPARATOR
from hlo2graph.errors import BackendError

MLP = ROOT / "samples" / "mlp.hlo"
READERS = (
    ("run", "FILE"),
    ("run", "FILE", "--backend", "cuda"),
    ("plan", "FILE"),
    ("plan", "FILE", "--why"),
    ("dot", "FILE", "-o", "TO.html"),
    ("dot", "FILE", "--driver"),
    ("buffers", "FILE"),
    ("budget", "FILE"),
    ("check", "FILE"),
    ("explain", "FILE", "--critical-path"),
    ("diff", "FILE", MLP),
    ("diff", MLP, "FILE"),
    ("xla", "FILE"),
    ("import", "FILE"),
    ("compile", "FILE", "-o", "TO.h2g"),
    ("kernels", "FILE"),
    ("kernels", "FILE", "--ptx", "--arch", "sm_90"),
    ("pointers", "FILE"),
    ("fmt", "FILE"),
    ("fmt", "FILE", "--check"),
    ("fmt", "FILE", "--in-place"),
)
WRITERS = (
    ("run", "--json"),
    ("run", "--save-outputs"),
    ("run", "--trace"),
    ("plan", "-o"),
    ("plan", "--json"),
    ("dot", "-o"),
    ("buffers", "-o"),
    ("budget", "-o"),
    ("check", "--json"),
    ("explain", "--critical-path", "-o"),
    ("diff", MLP, "-o"),
    ("import", "-o"),
    ("compile", "-o"),
    ("kernels", "-o"),
    ("pointers", "-o"),
    ("fmt", "-o"),
)


@pytest.fixture
def no_gpu(monkeypatch):
    """Nothing that needs a GPU, or takes what an extra installs, is here."""

    def missing():
        raise BackendError("no driver here")

    monkeypatch.setattr("hlo2graph.pipeline.cuda_target", missing)
    monkeypatch.setattr("hlo2graph.backends.cuda.compiler._nvrtc", missing)


def bad_files(folder):
    (folder / "folder").mkdir()
    (folder / "empty.hlo").touch()
    (folder / "garbage.hlo").write_bytes(bytes(range(256)))
    (folder / "garbage.h2g").write_bytes(bytes(range(256)))
    (folder / "broken.hlo").write_text(ADD.replace("add(x, y)", "add(x, nowhere)"))
    return {
        "nowhere.hlo": "nowhere.hlo: No such file or directory",
        "no/where.hlo": "no/where.hlo: No such file or directory",
        "folder": "folder: Is a directory",
        "empty.hlo": "empty.hlo: the text is empty",
        "garbage.hlo": "error: this is binary data",
        "garbage.h2g": "garbage.h2g: no .h2g file",
        "broken.hlo": "broken.hlo:5:26: error: no instruction here is named nowhere",
    }


@pytest.mark.parametrize("args", READERS, ids=lambda args: "-".join(map(os.path.basename, args)))
@pytest.mark.usefixtures("no_gpu")
def test_what_is_wrong_with_the_input_comes_first(cli, tmp_path, args):
    for name, said in bad_files(tmp_path).items():
        named = {"FILE": tmp_path / name}
        given = [named.get(arg, str(arg).replace("TO", f"{tmp_path}/to")) for arg in args]
        code, out, err = cli(*given)
        if args[0] == "xla":
            is_there = "No such" not in said
            said = "no dump of XLA's here" if is_there else said
        assert (code, out) == (2, ""), (name, out)
        assert said in err, name
        assert "driver" not in err
    assert not list(tmp_path.glob("to*"))


@pytest.mark.usefixtures("no_gpu")
def test_so_do_arguments_and_choices(cli, add):
    for flags, said in (
        (("--inputs", "nowhere.npz"), "nowhere.npz"),
        (("--input", "z=@z.npy"), "z names no input"),
        (("--capture", "some"), "capture is all"),
        (("--unroll-loops", "some"), "auto, never or"),
    ):
        code, _, err = cli("run", add, "--backend", "cuda", *flags)
        assert code == 2
        assert said in err
    assert cli("run", add, "--backend", "cuda")[0] == 3


@pytest.mark.parametrize("args", WRITERS, ids=lambda args: "-".join(map(os.path.basename, args)))
@pytest.mark.usefixtures("no_gpu")
def test_a_file_that_has_no_place_is_an_error_before_any_work(
    cli, add, tmp_path, monkeypatch, args
):
    monkeypatch.setattr("hlo2graph.cli.files.read_bytes", None)  # as work begins with this
    command, *flags = args
    before = sorted(tmp_path.iterdir())
    for path, said in (
        (tmp_path / "no" / "f.npz", "No such file or directory"),
        (add / "f.npz", "Not a directory"),
        (tmp_path, "Is a directory"),
    ):
        code, out, err = cli(command, add, *flags, path)
        assert (code, out, err) == (2, "", f"error: {path}: {said}\n")
    code, out, err = cli(command, add, *flags, "")
    assert (code, out) == (2, "")
    assert "an empty text names no file" in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_made_by_dump_is_a_place(cli, add, tmp_path):
    made = tmp_path / "a" / "b"
    assert cli("plan", add, "-o", made / "p.thunks", "--dump", made)[0] == 0
    assert (made / "p.thunks").exists()
    assert (made / "01_parse.txt").exists()
    other = tmp_path / "c"
    assert cli("plan", "nowhere.hlo", "-o", other / "p.thunks", "--dump", other)[0] == 2
    assert cli("plan", add, "-o", other / "d" / "p.thunks", "--dump", other)[0] == 2
    assert not other.exists()


@pytest.mark.parametrize(
    "args",
    [
        ("plan",),
        ("buffers",),
        ("budget",),
        ("check", "--runs", "0"),
        ("explain", "--critical-path"),
        ("diff", MLP),
    ],
    ids=lambda args: args[0],
)
def test_json_and_text_each_go_where_they_are_told(cli, tmp_path, args):
    command, *rest = args
    text = cli(command, MLP, *rest)[1]
    whole = cli(command, MLP, *rest, "--json", "-")[1]
    json.loads(whole)
    for flags, out, files in (
        (("--json", "-", "-o", "T"), whole, {"T": text}),
        (("--json", "J"), text, {"J": whole}),
        (("--json", "J", "-o", "T"), "", {"J": whole, "T": text}),
        (("--json", "J", "-o", "-"), text, {"J": whole}),
        (("--json", "-", "-o", "-"), whole, {}),
    ):
        given = [tmp_path / flag if flag in ("J", "T") else flag for flag in flags]
        assert cli(command, MLP, *rest, *given) == (0, out, "")
        for name, content in files.items():
            assert (tmp_path / name).read_text() == content
    code, _, err = cli(command, MLP, *rest, "--json", tmp_path / "X", "-o", tmp_path / "X")
    assert code == 2
    assert "--json and --output both name" in err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("explain", "-", "--critical-path"), "<stdin> holds 2 modules; ask about one"),
        (("diff", "-", MLP), "<stdin> holds 2 modules; compare one"),
        (("compile", "-", "-o", "TO"), "<stdin> holds 2 modules; compile one"),
        (("kernels", "-", "--cubin", "-o", "TO"), "<stdin> holds 2 modules; --cubin is for one"),
        (("run", "-", "--trace", "TO"), "<stdin> holds 2 modules; --trace is for one"),
        (("budget", "-", "-o", "TO.svg"), "<stdin> holds 2 modules; draw one"),
        (("dot", "-", "-o", "TO.svg"), "<stdin> holds 2 modules; a .svg file draws one"),
        (("fmt", "-", "--check"), "<stdin> is not canonical"),
        (("xla", "-"), "stdin is none of them"),
    ],
)
def test_stdin_has_one_name(cli, tmp_path, monkeypatch, args, said):
    data = f"{ADD}\n{SEPARATOR}\n{ADD}".encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    code, out, err = cli(*(str(arg).replace("TO", f"{tmp_path}/to") for arg in args))
    assert code == (1 if "canonical" in said else 2)
    assert out == ""
    assert said in err
    assert not list(tmp_path.iterdir())


def test_fmt_names_the_file_that_it_does_not_write(cli, add, tmp_path):
    compiled, mlir = tmp_path / "m.h2g", ROOT / "samples" / "stablehlo.mlir"
    cli("compile", add, "-o", compiled)
    for path in (compiled, mlir):
        code, out, err = cli("fmt", path, "--check")
        assert (code, out) == (2, "")
        assert err == f"error: {path} is no HLO text; print it with -o FILE.hlo\n"


def test_import_prints_what_fmt_prints_of_several_modules(cli, tmp_path):
    path = tmp_path / "two.hlo"
    path.write_text(f"// a comment\n{ADD}\n{SEPARATOR}\n{ADD}")
    assert cli("import", path) == cli("fmt", path)
    plan = tmp_path / "m.thunks"
    cli("plan", path, "-o", plan)
    code, out, err = cli("import", plan)
    assert (code, out) == (2, "")
    assert "this is thunk-sequence text: a plan, not a module" in err


@pytest.mark.parametrize(
    ("args", "package"),
    [
        (("run", "FILE", "--reference", "xla", *QUICK), "hlo2graph.inspect.xla.find_spec"),
        (("import", "--jax", "m:f"), "hlo2graph.importers.jax_function.find_spec"),
        (("plan", "MLIR"), "hlo2graph.importers.convert.find_spec"),
        (("fmt", "MLIR", "--check"), "hlo2graph.importers.convert.find_spec"),
        (("kernels", "FILE", "--ptx"), None),
        (("pointers", "FILE"), None),
    ],
)
@pytest.mark.usefixtures("no_gpu")
def test_whatever_is_not_installed_exits_with_3(cli, add, tmp_path, monkeypatch, args, package):
    if package:
        monkeypatch.setattr(package, lambda _: None)
    mlir = tmp_path / "m.mlir"
    mlir.write_text((ROOT / "samples" / "stablehlo.mlir").read_text())
    code, out, err = cli(*({"FILE": add, "MLIR": mlir}.get(arg, arg) for arg in args))
    assert (code, out) == (3, "")
    assert "pip install" in err if package else "no driver here" in err
