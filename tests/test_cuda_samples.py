"""Every sample as a graph on a CUDA driver that runs on the host, in orders that it allows."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

import hlo2graph
from tests.fake_cuda import fake
from tests.gpu.one import check, main, measured

__all__ = ["fake"]  # a fixture

SAMPLES = Path(__file__).parent.parent / "samples"


def runs_on_the_host(path):
    try:
        hlo2graph.compile(path.read_text(), backend="host")
    except hlo2graph.HloError:
        return False
    return True


RUNNING = [p for p in sorted(SAMPLES.glob("*.hlo")) if runs_on_the_host(p)]


@pytest.mark.parametrize("fuse", ["none", "default"])
@pytest.mark.parametrize("path", RUNNING, ids=lambda p: p.stem)
def test_graph_chain_and_serial_stream_agree_with_the_host(fake, path, fuse):
    program = hlo2graph.parse(path.read_text(), path.name)
    _, exe = fake(program, fuse=fuse, seed=1)
    assert check(program, path, exe, Namespace())["why"] == ""


def test_timings_have_every_figure(fake):
    path = SAMPLES / "wide_branches.hlo"
    program = hlo2graph.parse(path.read_text(), path.name)
    _, exe = fake(program)
    found = measured(program, path, exe, Namespace(duration=0.02))
    assert found["status"] == "ok"
    assert set(found["modes"]) == {"serial", "chain", "graph"}
    assert found["call"]["host"] > 0


@pytest.mark.parametrize("kind", ["check", "time", "plain"])
def test_the_suite_asks_for_one_program_at_a_time(fake, monkeypatch, capsys, kind):
    path = SAMPLES / "fusion.hlo"
    _, exe = fake(hlo2graph.parse(path.read_text(), path.name))
    monkeypatch.setattr(hlo2graph, "compile", lambda *_, **__: exe)
    main([kind, str(path), "--duration=0.02"])
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "ok", found["why"]
