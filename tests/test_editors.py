"""For editors and CI of other repositories: hooks, annotations, completion, manual, quiet."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
from conftest import ADD, ROOT
from jaxlib import _hlo

from hlo2graph.cli import progress
from hlo2graph.cli.main import COMMANDS, group
from hlo2graph.cli.roff import page
from hlo2graph.cli.voice import COMMON
from tests import wire

WRONG = ADD.replace("add(x, y)", "add(x, z)")
MODULE = _hlo.hlo_module_from_text(ADD).as_serialized_hlo_module_proto()
SNAPSHOT = wire.snapshot(MODULE, *[wire.f32(np.ones(4, np.float32))] * 2)
HALVES = (ROOT / "samples" / "halves.thunks").read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to stand in, with `hlo2graph` on the PATH."""
    tool = tmp_path / "bin" / "hlo2graph"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hlo2graph "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    work = tmp_path / "repo"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def shell(line: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a line of bash; `args` stand behind it."""
    command = ["bash", "-c", f'{line} "$@"', "bash", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# ***** fmt for pre-commit *****


def test_the_hook_that_help_shows_does_what_it_says(folder, cli):
    _, help_, _ = cli("fmt", "--help")
    entry = re.search(r"entry: (.*)", help_)[1]
    wanted = re.search(r"files: (.*)", help_)[1]
    for name in ("a.hlo", "b.hlo"):
        Path(name).write_text(ADD)
    Path("notes.txt").write_text("not HLO")
    staged = sorted(p.name for p in folder.iterdir() if re.search(wanted, p.name))
    assert staged == ["a.hlo", "b.hlo"]
    check = entry.replace("--in-place", "--check")
    assert shell(check, *staged).returncode == 1
    done = shell(entry, *staged)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = Path("a.hlo").read_text()
    assert "%s = f32[4] add(%x, %y)" in text
    assert Path("b.hlo").read_text() == text
    done = shell(check, *staged)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_fmt_leaves_canonical_files_alone(cli, add):
    cli("fmt", add, "--in-place")
    os.utime(add, ns=(1, 1))
    assert cli("fmt", add, "--in-place") == (0, "", "")
    assert add.stat().st_mtime_ns == 1


@pytest.mark.parametrize("flag", ["--check", "--in-place"])
def test_fmt_goes_on_behind_files_that_it_cannot_read(folder, cli, flag):
    Path("good.hlo").write_text(ADD)
    Path("wrong.hlo").write_text(WRONG)
    Path("plan.thunks").write_text(HALVES)
    code, out, err = cli("fmt", flag, "wrong.hlo", "nowhere.hlo", "plan.thunks", "good.hlo")
    assert (code, out) == (2, "")
    assert "wrong.hlo:5:26: error: no instruction here is named z" in err
    assert "error: nowhere.hlo: No such file" in err
    assert "plan.thunks:1:1: error: this is thunk-sequence text" in err
    if flag == "--check":
        assert "good.hlo is not canonical; hlo2graph fmt --in-place makes it so" in err
    else:
        assert cli("fmt", "--check", "good.hlo") == (0, "", "")


def test_fmt_prints_several_as_one_text(cli, add, tmp_path):
    code, once, _ = cli("fmt", add)
    assert code == 0
    code, twice, _ = cli("fmt", add, add)
    assert code == 0
    assert twice == f"{once}\n// -----\n\n{once}"
    both = tmp_path / "both.hlo"
    cli("fmt", add, add, "-o", both)
    assert cli("fmt", "--check", both) == (0, "", "")


def test_fmt_takes_stdin_once(cli):
    code, out, err = cli("fmt", "-", "-", "--check")
    assert (code, out) == (2, "")
    assert "only one FILE can be stdin" in err


def test_diff_guards_a_golden_plan(folder, cli):
    Path("model.hlo").write_text(ADD)
    assert cli("plan", "model.hlo", "--target", "sm_90", "-o", "golden.thunks")[0] == 0
    guard = ("diff", "golden.thunks", "model.hlo", "--target", "sm_90", "--exit-code")
    assert cli(*guard)[0] == 0
    Path("model.hlo").write_text(ADD.replace("add(x, y)", "subtract(x, y)"))
    code, out, err = cli(*guard, "--annotations", "github")
    assert code == 1
    assert "add" in out
    assert err.startswith("::error file=model.hlo::golden.thunks and model.hlo differ:%0Aadd%0A")
    Path("model.hlo").write_text(WRONG)
    assert cli(*guard)[0] == 2


# ***** annotations *****


@pytest.mark.parametrize("place", ["before", "behind"])
def test_an_error_is_marked_in_its_line(folder, cli, place):
    Path("wrong.hlo").write_text(WRONG)
    wish, command = ("--annotations", "github"), ("plan", "wrong.hlo")
    code, out, err = cli(*((*wish, *command) if place == "before" else (*command, *wish)))
    assert (code, out) == (2, "")
    shown, _, mark = err.removesuffix("\n").rpartition("\n")
    assert shown.startswith("wrong.hlo:5:26: error: no instruction here is named z\n")
    assert mark == "::error file=wrong.hlo,line=5,col=26::no instruction here is named z"


@pytest.mark.parametrize("command", ["plan", "run", "check", "dot", "buffers", "kernels"])
def test_what_does_not_verify_is_marked_by_every_command(folder, cli, command):
    Path("wrong.hlo").write_text(ADD.replace("f32[4] add", "f32[5] add"))
    code, _, err = cli(command, "wrong.hlo", "--annotations", "github")
    assert code == 2
    assert re.search(r"^::error file=wrong\.hlo,line=5,col=\d+::.*f32\[4\]", err, re.MULTILINE)


def test_a_run_that_fails_is_marked_on_its_file(folder, cli):
    code, out, _ = cli("plan", ROOT / "samples" / "halves.thunks")
    Path("race.thunks").write_text(re.sub("^edge t0 -> t2.*\n", "", out, flags=re.MULTILINE))
    wish = ("run", "race.thunks", "--duration", "0", "--annotations", "github")
    code, out, err = cli(*wish)
    assert code == 1
    assert "FAILED: other bits than program order" in out
    mark = "::error file=race.thunks::halves: FAILED: other bits than program order in "
    assert mark in err
    Path("race.thunks").write_text(HALVES)
    code, _, err = cli(*wish)
    assert (code, err) == (0, "")


def test_a_graph_that_is_too_slow_is_marked(folder, cli):
    Path("add.hlo").write_text(ADD)
    wish = ("run", "add.hlo", "--backend", "host", "--iterations", "3", "--annotations", "github")
    code, _, err = cli(*wish, "--fail-if-slower", "0.000001")
    assert code == 1
    assert "::error file=add.hlo::add: the graph takes " in err


def test_what_is_in_no_file_says_its_place(folder, cli, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(WRONG.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    code, _, err = cli("plan", "-", "--annotations", "github")
    assert code == 2
    assert "\n::error::<stdin>:5:26: no instruction here is named z\n" in err


def test_notes_and_odd_names_are_escaped(folder, cli):
    name = "50%,a:b.hlo"
    Path(name).write_text(ADD.replace("add(x, y)", "ad(x, y)"))
    code, _, err = cli("plan", name, "--annotations", "github")
    assert code == 2
    mark = err.splitlines()[-1]
    assert mark.startswith("::error file=50%25%2Ca%3Ab.hlo,line=5,col=")
    assert len([line for line in err.splitlines() if line.startswith("::")]) == 1


def test_files_are_named_from_the_workspace_on(folder, cli, monkeypatch):
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    inner = folder / "models"
    inner.mkdir()
    (inner / "add.hlo").write_text(ADD)
    monkeypatch.chdir(inner)
    code, _, err = cli("fmt", "--check", "add.hlo", "--annotations", "github")
    assert code == 1
    assert err.splitlines()[1].startswith("::error file=models/add.hlo,line=2,col=")


def test_fmt_marks_where_a_text_stops_being_canonical(folder, cli):
    Path("add.hlo").write_text(ADD)
    cli("fmt", "--in-place", "add.hlo")
    canonical = Path("add.hlo").read_text()
    Path("add.hlo").write_text(canonical.replace("add(%x, %y)", "add(%x,  %y)"))
    _, _, err = cli("fmt", "--check", "add.hlo", "--annotations", "github")
    line = next(n for n, text in enumerate(canonical.splitlines(), 1) if "add(%x" in text)
    column = canonical.splitlines()[line - 1].index("%y") + 1
    assert f"::error file=add.hlo,line={line},col={column}::add.hlo is not canonical" in err
    Path("add.hlo").write_text(canonical.removesuffix("\n"))
    _, _, err = cli("fmt", "--check", "add.hlo", "--annotations", "github")
    assert f"line={len(canonical.splitlines())},col=2::" in err


def test_check_marks_the_thunks_at_fault(folder, cli):
    _, plan, _ = cli("plan", ROOT / "samples" / "halves.thunks")
    Path("lacks.thunks").write_text(re.sub(r"edge t0 -> t2.*\n", "", plan))
    lines = Path("lacks.thunks").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if text.startswith("t2: "))
    code, out, err = cli("check", "lacks.thunks", "--annotations", "github")
    assert code == 1
    assert "no path from first_half to middle" in out
    want = "unordered: no path from first_half to middle: raw 1[16:32]"
    assert err == f"::error file=lacks.thunks,line={line},col=1::{want}\n"


def test_check_marks_thunks_that_read_and_write_what_they_must_not(folder, cli):
    _, plan, _ = cli("plan", ROOT / "samples" / "control_dependency.hlo")
    Path("bad.thunks").write_text(plan.replace("writes={2[0:256]}", "writes={0[0:256]}"))
    code, _, err = cli("check", "bad.thunks", "--annotations", "github")
    assert code == 1
    line = next(n for n, text in enumerate(plan.splitlines(), 1) if text.startswith("t0: "))
    assert f"::error file=bad.thunks,line={line},col=1::protected: first writes 0[0:256]" in err
    assert "::error file=bad.thunks::unwritten: the result first is read from 2[0:256]" in err


def test_other_errors_are_annotated_without_a_place(folder, cli):
    code, _, err = cli("plan", "nowhere.hlo", "--annotations", "github")
    assert code == 2
    assert err.splitlines()[1] == "::error::nowhere.hlo: No such file or directory"
    assert cli("plan", "nowhere.hlo", "--annotations", "gitlab")[0] == 2


# ***** completion *****


def test_bash_completes_commands_options_and_values(folder):
    lines = [("", "explain"), ("--annotations ", "github"), ("com", "compile completion")]
    lines += [("run --backend ", "auto host cuda"), ("-q plan --target s", "sm_80 sm_90")]
    script = 'eval "$(hlo2graph completion bash)"\n'
    for line, _ in lines:
        words = " ".join(f"'{word}'" for word in ("hlo2graph", *line.split(" ")))
        count = len(line.split(" "))
        script += f"COMP_WORDS=({words}); COMP_CWORD={count}; COMPREPLY=()\n"
        script += '_hlo2graph_completion hlo2graph; echo "${COMPREPLY[*]}"\n'
    done = shell(script)
    assert (done.returncode, done.stderr) == (0, "")
    for (line, wanted), got in zip(lines, done.stdout.splitlines(), strict=False):
        assert set(wanted.split()) <= set(got.split()), line


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_it_can_read(folder, cli, name):
    code, script, _ = cli("completion", name)
    assert code == 0
    assert f"_HLO2GRAPH_COMPLETE={name}_complete" in script
    if shutil.which(name):
        Path("script").write_text(script)
        assert shell(f"{name} -n script").returncode == 0


def test_files_are_completed_by_the_shell(folder, cli, monkeypatch):
    monkeypatch.setenv("_HLO2GRAPH_COMPLETE", "bash_complete")
    for line in ("plan mod", "run model.hlo --json rep", "fmt a.hlo b"):
        monkeypatch.setenv("COMP_WORDS", f"hlo2graph {line}")
        monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
        assert cli()[1].startswith("file,"), line


def test_a_shell_that_is_not_known(cli):
    code, out, err = cli("completion", "tcsh")
    assert (code, out) == (2, "")
    assert "'bash', 'zsh', 'fish'" in err


# ***** manual *****


def test_the_manual_has_every_command_and_option():
    text = page(click.Context(group, info_name="hlo2graph"), "hlo2graph 1", "2026-01-01")
    sections = dict(re.findall(r"^\.SS hlo2graph (.*)\n((?:(?!\.S[SH]).*\n)*)", text, re.MULTILINE))
    assert tuple(sections) == COMMANDS
    for name, section in sections.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        for option in command.params:
            for flag in option.opts if isinstance(option, click.Option) else ():
                escaped = flag.replace("-", r"\-")
                is_listed = f"{escaped}\\fR" in section or f"{escaped}," in section
                is_listed |= f"{escaped} " in section.partition(".TP")[2]
                assert is_listed is (option not in COMMON), (name, flag)


def test_a_manual_page_is_the_same_for_the_same_date(cli, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    code, out, _ = cli("man")
    assert code == 0
    assert out.startswith('.TH HLO2GRAPH 1 1970-01-02 "hlo2graph ')
    assert cli("man")[1] == out
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    code, out, err = cli("man")
    assert (code, out) == (2, "")
    assert "SOURCE_DATE_EPOCH is 'yesterday'" in err


@pytest.mark.parametrize(
    "tool", ["groff -ww -man -Tascii", "mandoc -T lint -W warning", "man --warnings -l"]
)
def test_the_manual_renders_without_warnings(folder, cli, monkeypatch, tool):
    if shutil.which(tool.split()[0]) is None:
        pytest.skip(f"{tool} is not here")
    monkeypatch.setenv("MANWIDTH", "90")
    assert cli("man", "-o", "page.1")[0] == 0
    done = shell(tool, "page.1")
    assert (done.returncode, done.stderr) == (0, "")
    if tool.startswith("man "):
        assert "hlo2graph plan model.hlo --max-buffer-reuse -1" in done.stdout
        assert "files: \\.hlo$" in done.stdout


# ***** quiet and colours *****


def test_quiet_leaves_notes_out_and_errors_in(folder, cli):
    module = Path("snapshot.pb")
    module.write_bytes(SNAPSHOT)
    code, out, err = cli("import", module)
    assert code == 0
    assert err == "2 arrays left out; -o FILE.hlo writes FILE.npz beside it\n"
    assert cli("import", module, "--quiet") == (0, out, "")
    assert cli("-q", "import", module) == (0, out, "")
    Path("wrong.hlo").write_text(WRONG)
    assert cli("-q", "plan", "wrong.hlo") == cli("plan", "wrong.hlo")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def seen(monkeypatch, *args: str, **environment: str) -> str:
    """Return what a terminal gets of progress while `plan` takes its time."""
    terminal = Terminal()
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)

    @click.command()
    @click.pass_context
    def slow(context: click.Context) -> None:
        with progress.progress("planning"):
            if "--quiet" in args:
                return
            deadline = time.monotonic() + 20
            while "planning" not in terminal.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)

    monkeypatch.setattr(group, "get_command", lambda *_: slow)
    assert group.main([*args, "slow"], prog_name="hlo2graph", standalone_mode=False) in (None, 0)
    return terminal.getvalue()


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_progress_has_colours_unless_no_color(monkeypatch):
    assert COLOUR.search(seen(monkeypatch))


def test_no_color_takes_colours_away(monkeypatch):
    shown = seen(monkeypatch, NO_COLOR="1")
    assert "planning" in shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)


def test_quiet_shows_no_progress(monkeypatch):
    assert seen(monkeypatch, "--quiet") == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_the_exit_code_holds_where_stderr_is_full(folder):
    Path("wrong.hlo").write_text(WRONG)
    done = shell("hlo2graph fmt --check wrong.hlo 2> /dev/full")
    assert (done.returncode, done.stdout) == (2, "")
