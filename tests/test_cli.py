"""The command line: exit codes, streams, files, and an error for every mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import click
import numpy as np
import pytest
from conftest import REFUSED, ROOT, SAMPLES

from hlo2graph.cli import units
from hlo2graph.cli.files import SEPARATOR, write_whole
from hlo2graph.cli.main import main
from hlo2graph.errors import BackendError
from hlo2graph.inspect.timing import ModeTiming

ADD = """\
HloModule add
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT s = f32[4] add(x, y)
}
"""
QUICK = ("--warmup", "0", "--iterations", "2", "--threads", "2")


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process; return exit code, stdout, stderr."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hlo2graph", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def add(tmp_path):
    path = tmp_path / "add.hlo"
    path.write_text(ADD)
    return path


def shell(*args: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "hlo2graph", *map(str, args)],
        capture_output=True,
        timeout=120,
        check=False,
        **options,
    )


# ***** run *****


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.name)
def test_run_every_sample(cli, sample):
    code, out, err = cli("run", sample, *QUICK)
    if sample.stem in REFUSED:
        assert (code, out) == (2, "")
        assert all(opcode in err for opcode in REFUSED[sample.stem])
        return
    assert (code, err) == (0, "")
    assert "serial" in out
    assert "graph" in out
    assert "FAILED" not in out


def test_run_saves_what_it_computed_from_what_was_given(cli, add, tmp_path):
    x, y = np.arange(4, dtype=np.float32), np.full(4, 0.5, np.float32)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "in.npz", arg0=x)
    code, _, _ = cli(
        *("run", add, *QUICK, "--inputs", tmp_path / "in.npz"),
        *("--input", f"y=@{tmp_path / 'y.npy'}", "--save-outputs", tmp_path / "out.npz"),
    )
    assert code == 0
    with np.load(tmp_path / "out.npz") as saved:
        np.testing.assert_array_equal(saved["out0"], x + y)


def test_run_draws_the_same_inputs_for_the_same_seed(cli, add, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        cli("run", add, *QUICK, "--seed", seed, "--save-outputs", tmp_path / f"{name}.npz")
    a, b, c = (np.load(tmp_path / f"{name}.npz")["out0"] for name in "abc")
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_run_json(cli, add, tmp_path):
    code, out, _ = cli("run", add, *QUICK, "--json", "-")
    document = json.loads(out)
    assert (code, document["module"], document["ok"]) == (0, "add", True)
    assert [m["name"] for m in document["timing"]["modes"]] == ["serial", "graph"]
    code, out, _ = cli("run", add, *QUICK, "--json", tmp_path / "report.json")
    assert out.startswith("add ")
    assert json.loads((tmp_path / "report.json").read_text())["module"] == "add"


def test_run_without_timing(cli, add):
    code, out, _ = cli("run", add, "--duration", "0")
    assert code == 0
    assert "serial" not in out


def test_run_reports_a_mismatch_with_exit_code_1(cli, add, monkeypatch):
    monkeypatch.setattr(
        "hlo2graph.inspect.session.host_results", lambda _, args: (args[0] - args[1],)
    )
    code, out, _ = cli("run", add, *QUICK)
    assert code == 1
    assert "FAILED" in out
    code, out, _ = cli("run", add, *QUICK, "--abs-error", "1e9")
    assert (code, "FAILED" in out) == (0, False)
    code, out, _ = cli("run", add, *QUICK, "--reference", "none")
    assert (code, "FAILED" in out) == (0, False)


@pytest.mark.slow
def test_run_against_xla(cli):
    code, out, _ = cli("run", ROOT / "samples" / "softmax.hlo", *QUICK, "--reference", "xla")
    assert code == 0
    assert "XLA:CPU" in out


def test_random_bits_are_held_against_nothing(cli, tmp_path):
    path = tmp_path / "rng.hlo"
    path.write_text(
        "HloModule rng\n"
        "draw { a = f32[] parameter(0) b = f32[] parameter(1)"
        " ROOT r = f32[8] rng(a, b), distribution=rng_uniform }\n"
        "ENTRY main { a = f32[] parameter(0) b = f32[] parameter(1)"
        " r = f32[8] call(a, b), to_apply=draw n = f32[8] negate(r) s = f32[] add(a, b)"
        " ROOT out = (f32[8], f32[]) tuple(n, s) }\n"
    )
    code, out, _ = cli("run", path, *QUICK)
    assert code == 0
    assert "but for 1 result: rng" in " ".join(out.split())


def test_fail_if_slower(cli, add, monkeypatch):
    """Latencies are made up: the graph takes 2 s, the serial order 1 s."""
    made_up = property(lambda t: np.full(8, 2.0 if t.mode.name == "graph" else 1.0))
    monkeypatch.setattr(ModeTiming, "latencies", made_up)
    assert cli("run", add, *QUICK, "--fail-if-slower", "2.5")[0] == 0
    code, _, err = cli("run", add, *QUICK, "--fail-if-slower", "1.5")
    assert code == 1
    assert "slower" in err


def test_run_takes_what_plan_prints(cli, add, tmp_path):
    _, planned, _ = cli("plan", add)
    (tmp_path / "add.thunks").write_text(planned)
    assert cli("run", tmp_path / "add.thunks", *QUICK)[0] == 0
    piped = shell("run", "-", *QUICK, input=planned.encode())
    assert (piped.returncode, piped.stderr) == (0, b"")


# ***** plan, dot, fmt *****


def test_plan_prints_and_reads_back(cli, add, tmp_path):
    _, printed, _ = cli("plan", add)
    assert printed.startswith("ThunkSequence add")
    assert cli("plan", add, "-o", tmp_path / "p.thunks") == (0, "", "")
    assert (tmp_path / "p.thunks").read_text() == printed
    assert cli("plan", tmp_path / "p.thunks") == (0, printed, "")


def test_plan_json(cli, add, tmp_path):
    code, out, _ = cli("plan", add, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["module"] == "add"
    assert document["stats"]["nodes"] == 1
    code, out, _ = cli("plan", add, "--json", tmp_path / "p.json")
    assert out.startswith("ThunkSequence")
    assert json.loads((tmp_path / "p.json").read_text()) == document


def test_planning_flags_reach_the_plan(cli):
    chains = ROOT / "samples" / "chains.hlo"
    stats = {
        flags: json.loads(cli("plan", chains, *flags, "--json", "-")[1])["stats"]
        for flags in ((), ("--max-buffer-reuse", "-1"), ("--schedule", "serialize"))
    }
    free, reused, serial = stats.values()
    assert free["width"] == 3
    assert reused["arena_bytes"] < free["arena_bytes"]
    assert serial["width"] == 1
    _, text, _ = cli("plan", chains, "--target", "sm_90", "--fuse", "none")
    assert "target=sm_90, fuse=none" in text.partition("\n")[0]


def test_dot(cli, add, tmp_path):
    code, out, _ = cli("dot", add)
    assert code == 0
    assert out.startswith("digraph")
    assert cli("dot", add, "-o", tmp_path / "add.dot") == (0, "", "")
    assert (tmp_path / "add.dot").read_text() == out


def test_fmt(cli, add):
    code, out, _ = cli("fmt", add)
    assert code == 0
    assert out.startswith("HloModule add")
    assert cli("fmt", add, "--check")[0] == 1
    assert add.read_text() == ADD
    assert cli("fmt", add, "--in-place") == (0, "", "")
    assert add.read_text() == out
    assert cli("fmt", add, "--check") == (0, "", "")


def test_several_modules_in_one_file(cli, tmp_path):
    path = tmp_path / "two.hlo"
    path.write_text(f"{ADD}{SEPARATOR}\n{ADD.replace('HloModule add', 'HloModule more')}")
    code, out, _ = cli("fmt", path)
    assert code == 0
    assert [line for line in out.splitlines() if line == SEPARATOR] == [SEPARATOR]
    assert cli("fmt", path, "--in-place")[0] == 0
    assert cli("fmt", path, "--check")[0] == 0
    _, planned, _ = cli("plan", path)
    assert planned.count("ThunkSequence ") == 2
    assert [p["module"] for p in json.loads(cli("plan", path, "--json")[1])] == ["add", "more"]
    assert cli("dot", path)[1].count("digraph") == 2
    assert len(json.loads(cli("run", path, *QUICK, "--json", "-")[1])) == 2


def test_dump_writes_every_stage(cli, add, tmp_path):
    assert cli("plan", add, "--target", "sm_90", "--dump", tmp_path / "d")[0] == 0
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == [
        "01_parse.txt",
        "02_verify.txt",
        "03_fuse.txt",
        "04_lower.txt",
        "05_drop_dead.txt",
        "06_place_copies.txt",
        "07_buffers.txt",
        "08_plan.txt",
    ]
    assert (tmp_path / "d" / "08_plan.txt").read_text() == cli("plan", add, "--target", "sm_90")[1]


# ***** errors *****


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run",), "Missing argument 'FILE'"),
        (("go",), "No such command 'go'"),
        (("run", "FILE", "--colour"), "No such option"),
        (("run", "FILE", "--input", "x=x.npy"), "NAME=@file.npy"),
        (("run", "FILE", "--input", "z=@z.npy"), "z names no input"),
        (("run", "FILE", "--input", "x=@nowhere.npy"), "nowhere.npy"),
        (("run", "FILE", "--inputs", "nowhere.npz"), "nowhere.npz"),
        (("run", "FILE", "--percentile", "101"), "percentiles"),
        (("run", "FILE", "--percentile", ""), "percentiles"),
        (("run", "FILE", "--warmup", "1h"), "length of time"),
        (("run", "FILE", "--duration", "-1"), "length of time"),
        (("run", "FILE", "--memory-budget", "lots"), "no size"),
        (("run", "FILE", "--max-buffer-reuse", "-2"), "-2"),
        (("run", "FILE", "--seed", "-1"), "-1"),
        (("run", "FILE", "--elided", "ones"), "zeros or random:SEED"),
        (("run", "FILE", "--json", "/nowhere/x.json"), "/nowhere/"),
        (("run", "FILE", "--save-outputs", "/nowhere/x.npz"), "/nowhere/"),
        (("plan", "FILE", "--dump", "FILE"), "FILE"),
        (("plan", "FILE", "-o", "/nowhere/p.thunks"), "/nowhere/"),
        (("plan", "nowhere.hlo"), "nowhere.hlo"),
        (("plan", "."), "directory"),
        (("fmt", "FILE", "--check", "--in-place"), "exclude each other"),
        (("fmt", "-", "--in-place"), "needs a file"),
    ],
)
def test_mistakes_exit_with_2_and_say_what_to_do(cli, add, args, said):
    code, out, err = cli(*(str(add) if arg == "FILE" else arg for arg in args))
    assert code == 2
    assert said.replace("FILE", str(add) if "'FILE'" not in said else "FILE") in err
    assert out == "" or "/nowhere/" in said


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"\x0a\x05hello\x12\x80\x93\xff",
        b"\xff\xfe",
        b"module @jit_f { func.func public @main() { return } }",
        b"HloModule m\n" + b"x" * 1_000_000,
        b"ThunkSequence",
        b"\0" * 100,
        ADD.replace("add(x, y)", "add(x, nowhere)").encode(),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan", "dot", "fmt"])
def test_what_is_no_program_exits_with_2(cli, tmp_path, command, data):
    path = tmp_path / "bad.hlo"
    path.write_bytes(data)
    code, out, err = cli(command, path)
    assert (code, out) == (2, "")
    assert "error: " in err
    assert "bad.hlo" in err
    assert len(err) < 5000


def test_positions_hold_in_a_later_module(cli, tmp_path):
    path = tmp_path / "two.hlo"
    path.write_text(f"{ADD}{SEPARATOR}\n{ADD.replace('add(x, y)', 'add(x, z)')}")
    code, _, err = cli("plan", path)
    assert code == 2
    assert f"{path}:12:" in err


def test_no_gpu_exits_with_3(cli, add, monkeypatch):
    def no_gpu():
        raise BackendError("no driver here")

    monkeypatch.setattr("hlo2graph.pipeline.cuda_target", no_gpu)
    assert cli("run", add, "--backend", "cuda") == (3, "", "error: no driver here\n")
    assert cli("run", add, *QUICK)[0] == 0


def test_planning_flags_with_a_thunk_sequence(cli, add, tmp_path):
    cli("plan", add, "-o", tmp_path / "p.thunks")
    code, _, err = cli("plan", tmp_path / "p.thunks", "--fuse", "none")
    assert code == 2
    assert "planned already" in err


def test_elided_constants_plan_but_do_not_run(cli, tmp_path):
    path = tmp_path / "elided.hlo"
    path.write_text("HloModule e\nENTRY main {\n  ROOT c = f32[64,64] constant({...})\n}\n")
    assert cli("plan", path)[0] == 0
    assert cli("dot", path)[0] == 0
    code, _, err = cli("run", path, *QUICK)
    assert code == 2
    assert "--elided" in err
    code, out, _ = cli("run", path, *QUICK, "--elided", "random:1")
    assert code == 0
    assert "random:1" in out


def test_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m hlo2graph plan {ROOT / 'samples' / 'attention.hlo'} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("ThunkSequence")
    assert done.stderr == ""


def test_interrupt(cli, add, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hlo2graph.plan", interrupted)
    code, out, err = cli("plan", add)
    assert (code, out, err.strip()) == (128 + signal.SIGINT, "", "interrupted")


def test_stdout_of_any_encoding(add):
    add.write_text(ADD.replace("HloModule add", 'HloModule "größe"').replace('"', ""))
    done = shell("plan", add, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert b"Traceback" not in done.stderr


# ***** help, files, units *****


@pytest.mark.parametrize("command", [[], ["run"], ["plan"], ["dot"], ["fmt"]])
def test_help_gives_examples(cli, command):
    code, out, err = cli(*command, "--help")
    assert (code, err) == (0, "")
    assert f"hlo2graph {command[0] if command else 'run'} " in out
    assert "Examples:" in out


def test_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['hlo2graph', '--help']\n"
        "from hlo2graph.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'lark', 'rich', 'ml_dtypes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_version(cli):
    assert cli("--version")[1].startswith("hlo2graph, version 0.")


def test_a_file_is_whole_or_absent(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o640)
    write_whole(str(path), "new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_whole(str(path), "newer")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_output_may_be_a_device(cli, add):
    assert cli("plan", add, "-o", os.devnull)[0] == 0


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (units.size, "4096", 4096),
        (units.size, "64KiB", 65536),
        (units.size, "1.5MB", 1_500_000),
        (units.size, "2 GiB", 2 * 2**30),
        (units.seconds("ms"), "250", 0.25),
        (units.seconds("ms"), "2s", 2.0),
        (units.seconds("s"), "500ms", 0.5),
        (units.seconds("s"), "1.5", 1.5),
        (units.percentiles, "50,99.9", (50.0, 99.9)),
    ],
)
def test_units(read, text, value):
    assert read(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (units.size, "-1"),
        (units.size, "1 parsec"),
        (units.size, ""),
        (units.seconds("s"), "1e3"),
        (units.seconds("s"), "1x"),
        (units.percentiles, "a"),
        (units.percentiles, "nan"),
        (units.percentiles, "50,"),
    ],
)
def test_units_refuse(read, text):
    with pytest.raises(click.BadParameter):
        read(text)
