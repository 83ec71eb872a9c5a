"""What `run` says before it does what takes long, and that this is what it then does."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.cli import progress
from hlo2graph.inspect import ahead, session
from hlo2graph.inspect.ahead import Ahead
from hlo2graph.inspect.session import Wishes, run_session
from hlo2graph.inspect.timing import Budget

SECOND = Budget(warmup=0.1, duration=1.0)


class Listener:
    """Keeps what it is told."""

    def __init__(self):
        self.said, self.long, self.notes = [], [], []

    def say(self, what, if_long=""):
        self.said.append(what)
        self.long.append(if_long)

    def note(self, text):
        self.notes.append(text)

    def hold(self):
        self.said.append("hold")


@pytest.mark.parametrize(
    ("what", "each", "text"),
    [
        (Ahead(9, SECOND, 2), 0.01, None),
        (Ahead(9, Budget(0.1, 60.0), 2), 0.1, None),
        (
            Ahead(9, SECOND, 2, pooled=4),
            2.0,
            "a run takes 2.00 s; now checking, 9 runs, about 18.0 s to 26.0 s, then measuring "
            "2 ways, about 8.00 s to 12.0 s "
            "(--reference none and --duration 0 leave that out)",
        ),
        (
            Ahead(0, Budget(0.1, 60.0, 10), 2, 6),
            1.0,
            "a run takes 1.00 s; now measuring 2 ways, about 22.0 s to 33.0 s, then 6 runs with "
            "stamps, about 6.00 s to 12.0 s (--duration 0 leaves that out)",
        ),
        (Ahead(0, None, 2), 100.0, None),
    ],
)
def test_the_estimate_is_the_sum_of_what_follows(what, each, text):
    assert what.told(each) == text


@pytest.mark.parametrize("reference", ["host", "none"])
def test_as_many_runs_follow_as_are_told(add, monkeypatch, reference):
    """On a program slower than all it is given to be measured."""
    runs = Counter()
    for name in ("__call__", "execute", "execute_stamped", "run_random", "run_parallel"):
        real = getattr(HostExecutable, name)

        def counted(self, *args, real=real, name=name, **named):
            runs[name] += 1
            return real(self, *args, **named)

        monkeypatch.setattr(HostExecutable, name, counted)
    evaluated = session.host_results
    monkeypatch.setattr(
        session, "host_results", lambda *args: (runs.update(["reference"]), evaluated(*args))[1]
    )
    monkeypatch.setattr(ahead, "PATIENCE", 0.0)
    module, listener = h2g.parse(add.read_text()), Listener()
    executable = h2g.compile(module, "host")
    args = [np.ones(shape, dtype) for _, dtype, shape in executable.inputs]
    budget = Budget(warmup=0.0, duration=1e-9)
    wishes = Wishes(reference=reference, budget=budget, profile=True, waiting=listener)
    run_session(executable, args, wishes, module=module)
    checks = runs["run_random"] + runs["run_parallel"] + runs["reference"]
    measured, stamped = runs["execute"], runs["execute_stamped"]
    assert measured == 4
    assert f"of at least {1 + checks + measured + stamped} runs" in listener.long[0]
    (note,) = listener.notes
    assert (f"now checking, {checks} runs," in note) == (reference == "host")
    assert f"{stamped} runs with stamps" in note


def test_a_pipe_gets_a_line_and_who_asks_for_quiet_or_json_there_none(
    cli, add, monkeypatch, tmp_path
):
    monkeypatch.setattr(ahead, "PATIENCE", 0.0)
    run = ("run", add, "--backend", "host", "--duration", "0.01s", "--warmup", "0")
    _, _, err = cli(*run)
    (line,) = err.splitlines()
    assert line.startswith("note: a run takes ")
    assert line.endswith("(--reference none and --duration 0 leave that out)")
    assert cli(*run, "--quiet")[2] == ""
    assert cli(*run, "--json", "-")[2] == ""
    assert cli(*run, "--json", tmp_path / "x.json")[2].startswith("note: a run takes ")


@pytest.mark.parametrize("silent", [False, True])
def test_what_stays_long_is_said_once(capsys, monkeypatch, silent):
    monkeypatch.setattr(progress, "LONG", 0.01)
    said = ""
    with progress.progress("m.hlo", silent=silent) as shown:
        shown.say("run", "it takes long")
        deadline = time.monotonic() + (0.1 if silent else 20)
        while not said and time.monotonic() < deadline:
            time.sleep(0.01)
            said += capsys.readouterr().err
        monkeypatch.setattr(progress, "LONG", 100)
        shown.say("check", "so does this")
    assert said + capsys.readouterr().err == ("" if silent else "note: it takes long\n")
