"""The commands: what they print, write and answer."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import ADD, QUICK, REFUSED, ROOT, SAMPLES

from hlo2graph.cli.files import SEPARATOR
from hlo2graph.inspect.timing import ModeTiming


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
    assert code == 0
    assert all(line.startswith("note: ") for line in err.splitlines()), err
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


def test_run_says_which_flags_the_host_has_no_use_for(cli, add):
    on_host = "run", add, "--backend=host", "--duration=0"
    code, _, err = cli(*on_host, "--pointers=cache", "--cold-l2")
    assert (code, err) == (
        0,
        "note: --cold-l2, --pointers are for cuda; this runs on the host\n",
    )
    assert cli(*on_host, "--capture=temps", "-q")[2] == ""
    assert cli(*on_host)[2] == ""


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
    assert "graph takes 2.00 times as long as serial, --fail-if-slower allows 1.5" in err


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
        "06_use_libraries.txt",
        "07_place_copies.txt",
        "08_buffers.txt",
        "09_plan.txt",
    ]
    assert (tmp_path / "d" / "09_plan.txt").read_text() == cli("plan", add, "--target", "sm_90")[1]
