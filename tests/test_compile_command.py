"""`hlo2graph compile`, and commands that take what it writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from conftest import QUICK, ROOT

import hlo2graph as h2g
from hlo2graph.backends.elided import fill_module
from hlo2graph.inspect.compare import same_bits
from hlo2graph.saved.container import MAGIC, START
from hlo2graph.saved.reading import read_saved
from tests.test_cuda_graph import DIAMOND, LOOP
from tests.test_saved import ELIDED, path, small

__all__ = ["path", "small"]  # fixtures


def test_no_parser_and_no_compiler_is_loaded(path):
    """All commands that can do without; each is given the file in one process."""
    h2g.save(h2g.plan(LOOP, target="sm_90"), path, module=h2g.parse(LOOP))
    commands = [
        ["run", "--backend", "host", "--duration", "0"],
        ["plan", "--json", "-"],
        ["check", "--runs", "1"],
        ["buffers"],
        ["explain", "--critical-path"],
        ["dot"],
        ["dot", "--stage", "graph", "-o", str(path.with_suffix(".html"))],
        ["kernels"],
    ]
    code = (
        "import sys, json\n"
        "for name in ('lark', 'cuda', 'jax'): sys.modules[name] = None\n"
        "from hlo2graph.cli.main import main\n"
        "for name, *rest in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['hlo2graph', name, sys.argv[2] if len(sys.argv) == 3 else last, *rest]\n"
        "    last = sys.argv[2]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, (name, end.code)\n"
    )
    command = [sys.executable, "-c", code, json.dumps(commands), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "equal to the program evaluated as written" in done.stdout


def test_no_compiler_is_loaded_for_a_gpu_either(path):
    h2g.save(h2g.plan(LOOP, target="sm_90"), path)
    code = (
        "import sys\n"
        "import hlo2graph.backends.cuda.executable\n"
        "from hlo2graph.saved.container import read_container\n"
        "from hlo2graph.saved.kernels import kernels_for\n"
        "from hlo2graph.saved.reading import read_saved\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        "assert read_saved(data, 'm').plan.target == 'sm_90'\n"
        "assert kernels_for(read_container(data, 'm'), 'sm_90').units\n"
        "assert 'libnvrtc' not in open('/proc/self/maps').read()\n"
        "print([m for m in ('lark', 'hlo2graph.pipeline') if m in sys.modules])\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_commands_take_it_in_place_of_the_program(cli, tmp_path, path):
    source = tmp_path / "loop.hlo"
    source.write_text(LOOP)
    code, out, err = cli("compile", source, "-o", path, "--target", "host")
    assert (code, err) == (0, "")
    assert out.startswith(f"{path}   ")
    assert re.search(r" for host; \d+ thunks, \d+ edges", out)
    for command in (
        ["plan"],
        ["plan", "--json", "-"],
        ["buffers"],
        ["budget", "--target", "host"],
        ["explain", "--critical-path"],
        ["fmt"],
    ):
        given = ["--target", "host"] if command[0] in ("plan", "buffers", "explain") else []
        want = cli(command[0], source, *command[1:], *given)
        assert cli(command[0], path, *command[1:]) == want
    assert cli("diff", source, path, "--exit-code")[0] == 0
    assert cli("check", path)[0] == 0
    code, out, _ = cli("run", path, *QUICK)
    assert code == 0
    assert "built    load" in out


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["plan", "--target", "sm_90"], "--target: .*model.h2g is planned already; compile its"),
        (["run", "--fuse", "none"], "--fuse: .*model.h2g is planned already"),
        (["fmt", "--check"], "is no HLO text"),
        (["compile", "-o", "-"], "this does not go to stdout; name a file"),
        (["compile", "-o", "x.h2g", "--arch", "sm_90"], "is planned for the host, give --target"),
        (["compile", "-o", "x.h2g", "--arch", "90"], "'90' is no architecture"),
        (["compile"], "Missing option '-o'"),
    ],
)
def test_usage(command, says, cli, path, small):
    code, _, err = cli(command[0], path, *command[1:])
    assert code == 2
    assert re.search(says, err), err


def test_a_broken_file_is_an_error_of_usage(cli, path, small):
    path.write_bytes(small[:-1] + b"?")
    assert cli("run", path)[::2] == (
        2,
        f"error: {path}: damaged: its checksum is not that of what it holds\n",
    )
    path.write_text(DIAMOND)
    assert "no .h2g file: it does not begin as one does" in cli("plan", path)[2]
    path.write_bytes(MAGIC)
    assert "cut off" in cli("plan", path)[2]
    assert START.size == 64
    assert "No such file" in cli("run", path.with_name("gone.h2g"))[2]


@pytest.mark.parametrize(
    ("text", "flags", "says"),
    [
        (ELIDED, ["--target", "host"], "elides the value of constant x"),
        (
            (ROOT / "samples" / "collectives.hlo").read_text(),
            ["--target", "sm_90"],
            "cuda cannot run .* kinds of operation",
        ),
        (
            (ROOT / "samples" / "collectives.hlo").read_text(),
            ["--target", "host"],
            "the host cannot run .* kinds of operation",
        ),
        (DIAMOND, ["--target", "sm_90", "--arch", "sm_80"], "older than the plan's target"),
        (DIAMOND, ["--target", "sm_90", "--arch", "sm_999"], r"NVRTC .* sm_90, .*, not for sm_999"),
        (DIAMOND, ["--unroll-loops", "some"], "unroll_loops is auto, never or"),
        (DIAMOND, ["--capture", "some"], "capture is all"),
        (f"{DIAMOND}\n// -----\n{DIAMOND}", [], "model.hlo holds 2 modules; compile one"),
    ],
)
def test_what_could_not_run_is_not_compiled(text, flags, says, cli, tmp_path, path):
    source = tmp_path / "model.hlo"
    source.write_text(text)
    code, _, err = cli("compile", source, "-o", path, *flags)
    assert code == 2
    assert re.search(says, err), err
    assert not path.exists()


def test_why_is_that_of_the_plan_in_the_file(cli, tmp_path, path):
    source = tmp_path / "model.hlo"
    source.write_text(DIAMOND)
    h2g.save(h2g.plan(DIAMOND, target="sm_90"), path, module=h2g.parse(DIAMOND), arches=())
    want = cli("plan", source, "--why", "--target", "sm_90")
    assert cli("plan", path, "--why") == want
    assert cli("plan", path, "--why", "--fuse", "none")[0] == 2
    h2g.save(h2g.plan(DIAMOND, target="sm_90", fuse="none"), path, module=h2g.parse(DIAMOND))
    assert cli("plan", path, "--why")[1].startswith("Nothing is fused")


def test_compiles_for_the_gpu_that_is_here(cli, tmp_path, path, monkeypatch):
    source = tmp_path / "model.hlo"
    source.write_text(DIAMOND)
    monkeypatch.setattr("hlo2graph.pipeline.machine_for", lambda _: "sm_90")
    here = SimpleNamespace(arch="sm_100")
    monkeypatch.setattr("hlo2graph.backends.cuda.driver.open_device", lambda: here)
    for flags, arches in (
        ([], "sm_100"),
        (["--target", "auto"], "sm_100"),
        (["--target", "sm_90"], "sm_90"),
        (["--arch", "sm_90,sm_103"], "sm_90, sm_103"),
    ):
        code, out, _ = cli("compile", source, "-o", path, *flags)
        assert code == 0
        assert f" for sm_90, kernels for {arches}; " in out


def test_a_pipe_gets_the_file_alone(tmp_path):
    source = tmp_path / "m.hlo"
    source.write_text(DIAMOND)
    compiled = f'"{sys.executable}" -m hlo2graph compile "{source}" --target host -o /dev/stdout'
    command = f'{compiled} | "{sys.executable}" -m hlo2graph plan - --json -'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["module"] == "diamond"
    assert done.stderr == ""


def test_compiling_a_compiled_file_keeps_its_choices(cli, tmp_path, path):
    h2g.save(h2g.plan(LOOP, target="sm_90"), path, pointers="cache", unroll_loops="7")
    again = tmp_path / "again.h2g"
    code, out, _ = cli("compile", path, "-o", again, "--arch", "sm_103", "--pointers", "table")
    assert (code, " for sm_90, kernels for sm_103; " in out) == (0, True)
    choices = read_saved(again.read_bytes(), "again").choices
    assert (choices.pointers, choices.unroll_loops) == ("table", "7")


def test_elided_values_are_kept(cli, tmp_path, path):
    source = tmp_path / "model.hlo"
    source.write_text(ELIDED)
    code, _, _ = cli("compile", source, "-o", path, "--target", "host", "--elided", "random:1")
    assert code == 0
    saved = read_saved(path.read_bytes(), "m")
    assert saved.module == fill_module(h2g.parse(ELIDED), "random:1")
    source.write_text(DIAMOND)
    assert cli("compile", source, "-o", path.with_name("d.h2g"), "--elided", "zeros")[0] == 0
    assert read_saved(path.with_name("d.h2g").read_bytes(), "d").module is not None
    assert same_bits(h2g.load(path)(), h2g.compile(ELIDED, "host", elided="random:1")())
