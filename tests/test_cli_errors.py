"""Every mistake at the command line has an exit code and says what to do; none a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from conftest import ADD, QUICK, ROOT

from hlo2graph.cli.files import SEPARATOR
from hlo2graph.errors import BackendError


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("run",), "Missing argument 'FILE'"),
        (("go",), "No such command 'go'"),
        (("plna", "FILE"), "No such command 'plna'; did you mean plan?"),
        (("run", "FILE", "--colour"), "No such option"),
        (("run", "FILE", "--input", "x=x.npy"), "NAME=@file.npy"),
        (("run", "FILE", "--input", "z=@z.npy"), "z names no input"),
        (("run", "FILE", "--input", "x=@"), "NAME=@file.npy"),
        (("dot", "FILE", "--times", "FILE"), "FILE: the times are no JSON"),
        (("run", "FILE", "--input", "x=@nowhere.npy"), "nowhere.npy"),
        (("run", "FILE", "--inputs", "nowhere.npz"), "nowhere.npz"),
        (("run", "FILE", "--percentile", "101"), "percentiles"),
        (("run", "FILE", "--percentile", ""), "percentiles"),
        (("run", "FILE", "--warmup", "1h"), "length of time"),
        (("run", "FILE", "--duration", "-1"), "length of time"),
        (("run", "FILE", "--memory-budget", "lots"), "no size"),
        (("run", "FILE", "--max-buffer-reuse", "-2"), "-2"),
        (("run", "FILE", "--seed", "-1"), "-1"),
        (("check", "FILE", "--seed", "-1"), "-1"),
        (("pointers", "FILE", "--seed", "-1"), "-1"),
        (("run", "FILE", "--duration", "0", "--fail-if-slower", "1"), "--duration 0 measures none"),
        (("dot", "FILE", "-o", "x.jpg"), "not .jpg"),
        (("run", "FILE", "--abs-error", "nan"), "'nan' is no number"),
        (("run", "FILE", "--fail-if-slower", "nan"), "'nan' is no number"),
        (("run", "FILE", "--threads", "100000"), "1<=x<=1024"),
        (("run", "FILE", "--unroll-loops", "some"), "auto, never or a number of rounds"),
        (("run", "FILE", "--elided", "ones"), "zeros or random:SEED"),
        (("run", "FILE", "--json", "/nowhere/x.json"), "/nowhere/"),
        (("run", "FILE", "--save-outputs", "/nowhere/x.npz"), "/nowhere/"),
        (("plan", "FILE", "--dump", "FILE"), "FILE"),
        (("plan", "FILE", "-o", "/nowhere/p.thunks"), "error: /nowhere/p.thunks: "),
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
        b"module @jit_f { func.func public @main() { retrun } }",
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
    code, out, err = cli("run", add, "--backend", "cuda")
    assert (code, out, err) == (3, "", "error: no driver here; --backend host takes no GPU\n")
    for other in (("pointers", add), ("dot", add, "--driver")):
        assert cli(*other) == (3, "", "error: no driver here\n")
    assert cli("run", add, *QUICK)[0] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("plan", "--annotations", "github"), "Missing argument 'FILE'."),
        (("plan", "FILE", "--fuse", "x", "--annotations", "github"), "Invalid value for '--fuse'"),
        (("--annotations", "github", "plan", "FILE", "--bad"), "No such option '--bad'."),
        (("plan", "FILE", "-o", "/nowhere/x", "--annotations", "github"), "/nowhere/x: No such"),
        (("run", "FILE", "--backend", "cuda", "--annotations", "github"), "no NVIDIA driver"),
    ],
)
def test_every_error_is_annotated_wherever_the_option_stands(cli, add, monkeypatch, args, said):
    def no_gpu():
        raise BackendError("no NVIDIA driver")

    monkeypatch.setattr("hlo2graph.pipeline.cuda_target", no_gpu)
    code, _, err = cli(*(add if arg == "FILE" else arg for arg in args))
    assert code in (2, 3)
    assert err.splitlines()[-1].startswith(f"::error::{said}")


@pytest.mark.parametrize(
    ("args", "flags"),
    [
        (("dot", "--unroll-loops", "3"), "--unroll-loops"),
        (("dot", "--stage", "hlo", "--unroll-loops", "3", "--fuse", "none"), "--fuse"),
        (("dot", "--driver", "--fold", "--limit", "3"), "--fold, --limit means nothing"),
        (("run", *QUICK, "--reference", "none", "--abs-error", "1"), "--abs-error"),
        (("run", *QUICK, "--cold-l2"), "--cold-l2"),
    ],
)
def test_flags_that_mean_nothing_are_named(cli, add, args, flags):
    code, _, err = cli(args[0], add, *args[1:])
    assert code == 3 * ("--driver" in args)
    assert "note: " in err
    assert flags in err
    assert cli(args[0], add, *args[1:], "--quiet")[2].count("note") == 0


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


@pytest.mark.parametrize(
    ("closed", "code"), [(">&-", 2), ("2>&-", 0), (">&- 2>&-", 2), ("-o PLAN >&-", 0)]
)
def test_results_are_not_lost_in_a_closed_stream(add, tmp_path, closed, code):
    closed = closed.replace("PLAN", f'"{tmp_path / "plan.txt"}"')
    command = f'"{sys.executable}" -m hlo2graph plan "{add}" {closed}'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr == ("error: Bad file descriptor\n" if closed == ">&-" else "")


def test_interrupt(cli, add, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hlo2graph.plan", interrupted)
    code, out, err = cli("plan", add)
    assert (code, out, err.strip()) == (128 + signal.SIGINT, "", "interrupted")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("kernels", "--ptx", "--cubin"), "give one of --ptx and --cubin"),
        (("kernels", "--arch", "sm_90"), "--arch is for --ptx or --cubin"),
        (("kernels", "--ptx", "--arch", "sm_12"), "not for sm_12"),
        (
            ("explain", "--critical-path", "--false-edges"),
            "ask one question: --critical-path or --false-edges",
        ),
    ],
)
def test_one_of_two(cli, add, args, said):
    code, out, err = cli(args[0], add, *args[1:])
    assert (code, out) == (2, "")
    assert said in err


def test_no_driver_is_said_in_our_own_words(monkeypatch):
    from hlo2graph.backends.cuda import driver

    def missing(_flags):
        raise RuntimeError("words of the package's own")

    monkeypatch.setattr(driver, "cuda", SimpleNamespace(cuInit=missing))
    with pytest.raises(BackendError) as caught:
        driver.device_count()
    said = str(caught.value)
    assert said.startswith("no NVIDIA driver is installed here; ")
    assert "hlo2graph doctor" in said
    assert "--backend" not in said, "an option that not all who ask for the GPU have"
    assert "words" not in said


@pytest.mark.parametrize("apart", [0.0005, 0.05])
def test_two_interrupts_end_with_one_line(tmp_path, apart):
    command = [sys.executable, "-m", "hlo2graph", "run", ROOT / "samples" / "wide_branches.hlo"]
    options = ["--backend", "host", "--threads", "4", "--duration", "60", "--dump", tmp_path / "d"]
    going = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("d/*_plan.txt")):
        assert going.poll() is None
        time.sleep(0.01)
    time.sleep(0.4)
    going.send_signal(signal.SIGINT)
    time.sleep(apart)
    going.send_signal(signal.SIGINT)
    _, err = going.communicate(timeout=30)
    assert (going.returncode, err) == (128 + signal.SIGINT, "interrupted\n")


def test_a_terminal_of_any_encoding(add):
    add.write_text(ADD.replace("add(x, y)", "add(x, \N{SNOWMAN})"))
    done = subprocess.run(
        [sys.executable, "-m", "hlo2graph", "plan", add],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"error: " in done.stderr
    assert rb"\u2603" in done.stderr
