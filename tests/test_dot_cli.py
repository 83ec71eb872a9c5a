"""`dot` at the command line: every stage in every format, and what does not go together."""

from __future__ import annotations

import json
import shutil

import pytest
from conftest import ROOT

SAMPLES = ROOT / "samples"
needs_dot = pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz's program dot is missing")


@pytest.mark.parametrize("stage", ["hlo", "thunks", "graph"])
@pytest.mark.parametrize(
    ("suffix", "start"),
    [
        ("dot", b"digraph"),
        ("json", b"{"),
        ("mmd", b"---\ntitle: "),
        ("html", b"<!doctype html>"),
        pytest.param("svg", b"<?xml", marks=needs_dot),
        pytest.param("png", b"\x89PNG", marks=needs_dot),
        pytest.param("pdf", b"%PDF", marks=needs_dot),
    ],
)
def test_every_stage_in_every_format(cli, tmp_path, stage, suffix, start):
    path = tmp_path / f"x.{suffix}"
    assert cli("dot", SAMPLES / "loop.hlo", "--stage", stage, "-o", path) == (0, "", "")
    assert path.read_bytes().startswith(start)


def test_the_page_has_plans_of_other_sizes(cli, tmp_path):
    path = tmp_path / "x.html"
    flags = ("--memory-budget", "9000")
    assert cli("dot", SAMPLES / "attention.hlo", "--target", "host", *flags, "-o", path)[0] == 0
    text = path.read_text()
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    sizes = [point["bytes"] for point in data["curve"]]
    assert len(sizes) > 2
    assert sizes == sorted(sizes)
    assert sum(point["shown"] for point in data["curve"]) == 1
    assert {"serial", "default"} <= {point["label"] for point in data["curve"]}
    assert any(point["added"] for point in data["curve"])


@pytest.mark.parametrize("limit", ["MOST_PLANNED", "MOST_LOWERED"])
def test_what_takes_long_to_plan_is_planned_once(cli, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(f"hlo2graph.cli.dot.{limit}", 2)
    path = tmp_path / "x.html"
    assert cli("dot", SAMPLES / "attention.hlo", "--target", "sm_90", "-o", path)[0] == 0
    assert '"curve":[]' in path.read_text()


def test_a_thunk_sequence_has_a_page_too(cli, tmp_path):
    path = tmp_path / "x.html"
    assert cli("dot", SAMPLES / "halves.thunks", "-o", path)[0] == 0
    assert '"curve":[]' in path.read_text()


def test_parts_and_repeats(cli):
    code, out, _ = cli("dot", SAMPLES / "attention.hlo", "--around", "masked", "--hops", "1")
    assert code == 0
    assert "within 1 hop of masked, 5 of 16 nodes" in out
    code, out, _ = cli("dot", SAMPLES / "wide_branches.hlo", "--fold", "--target", "host")
    assert code == 0
    assert "stand for 15" in out


def test_times_colour_the_nodes(cli, tmp_path):
    times = tmp_path / "run.json"
    nodes = [{"name": n, "launches": 1, "each": t, "total": t} for n, t in (("exp", 1), ("sum", 9))]
    plan = {"module": "wide_branches", "machine": "M", "target": "host", "fuse": "none"}
    times.write_text(json.dumps({**plan, "profile": {"nodes": nodes}}))
    given = ("dot", SAMPLES / "wide_branches.hlo", "--target", "host", "--times", times)
    code, out, _ = cli(*given)
    assert code == 0
    line = next(line for line in out.splitlines() if 'tooltip="sum"' in line)
    assert "9.00 s" in line
    assert "#f68f63" in line
    assert "times measured on" in cli(*given)[1].splitlines()[1]
    assert "9.00 s" not in cli(*given, "--color", "kind")[1]
    assert "times" not in cli(*given, "--color", "kind")[1].splitlines()[1]
    assert "times estimated for an H200" in cli(*given[:4], "--color", "time")[1].splitlines()[1]
    assert cli(*given[:4], "-o", tmp_path / "g.json")[0] == 0
    caption = json.loads((tmp_path / "g.json").read_text())["caption"]
    assert "times estimated for an H200" in caption
    code, _, err = cli("dot", given[1], "--target", "sm_90", "--times", times)
    assert code == 2
    assert "another plan of wide_branches: draw it with --target host --fuse none" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--stage", "graph", "--depth", "1"), "are for --stage thunks and hlo"),
        (("--stage", "hlo", "--color", "time"), "--stage hlo has none"),
        (("--stage", "hlo", "--computation", "no"), "there is no computation no"),
        (("--hops", "1"), "goes with around"),
        (("--around", "nothing"), "no node of this picture is called nothing"),
        (("--stage", "graph", "--unroll-loops", "x"), "auto, never or a number of rounds"),
        (("-o", "x.bmp"), "not .bmp"),
        (("-o", "x.txt"), "written as .dot, .gv, .json, .mmd, .svg, .png, .pdf, .html, by"),
    ],
)
def test_what_does_not_go_together(cli, tmp_path, flags, message):
    flags = [str(tmp_path / f) if f == "x.bmp" else f for f in flags]
    code, _, err = cli("dot", SAMPLES / "loop.hlo", *flags)
    assert code == 2
    assert message in err


def test_hlo_of_a_thunk_sequence(cli):
    code, _, err = cli("dot", SAMPLES / "halves.thunks", "--stage", "hlo")
    assert code == 2
    assert "FILE is a thunk sequence" in err


def test_the_drivers_drawing_needs_a_gpu(cli, monkeypatch):
    from hlo2graph import pipeline
    from hlo2graph.errors import BackendError

    def none():
        raise BackendError("no CUDA driver answers here")

    monkeypatch.setattr(pipeline, "cuda_target", none)
    code, _, err = cli("dot", SAMPLES / "loop.hlo", "--driver")
    assert code == 3
    assert "no CUDA driver" in err
