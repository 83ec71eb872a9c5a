"""Help, files and units of the command line."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from conftest import ADD

from hlo2graph.cli import units
from hlo2graph.cli.files import write_whole
from hlo2graph.cli.main import COMMANDS


@pytest.mark.parametrize("command", [[], ["run"], ["plan"], ["dot"], ["fmt"]])
def test_help_gives_examples(cli, command):
    code, out, err = cli(*command, "--help")
    assert (code, err) == (0, "")
    assert f"hlo2graph {command[0] if command else 'run'} " in out
    assert "Examples:" in out


def test_the_list_of_commands_has_whole_sentences(cli):
    listed = cli("--help")[1].partition("Commands:\n")[2].splitlines()
    assert len(listed) == len(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("..") for line in listed), listed


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
    monkeypatch.setattr(
        "pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(OSError, match="full"):
        write_whole(str(path), "newer")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_output_may_be_a_device(cli, add):
    assert cli("plan", add, "-o", os.devnull)[0] == 0
    pipe = f'"{sys.executable}" -m hlo2graph plan "{add}" -o /dev/stdout | head -n 1'
    done = subprocess.run(pipe, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ThunkSequence add")
    full = "/dev/full"  # which Linux has
    if os.path.exists(full):
        code, _, err = cli("plan", add, "-o", full)
        assert (code, err) == (2, "error: /dev/full: No space left on device\n")


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


@pytest.mark.parametrize("option", ["--profile nodes", "--annotations github"])
def test_a_value_that_is_needed_looks_needed(cli, option):
    _, out, _ = cli("run", "--help")
    assert f"{option} " in out


def test_a_byte_order_mark_is_no_text(cli, tmp_path):
    path = tmp_path / "marked.hlo"
    path.write_bytes(b"\xef\xbb\xbf" + ADD.encode())
    code, out, err = cli("fmt", path)
    assert (code, err) == (0, "")
    path.write_text(ADD)
    assert cli("fmt", path)[1] == out


def test_a_line_of_binary_data_is_shown_as_text(cli, tmp_path):
    path = tmp_path / "binary.hlo"
    path.write_bytes(b"HloModule \x1b[31m\x00\x07\xff\xfe m\n")
    code, out, err = cli("plan", path)
    assert (code, out) == (2, "")
    assert err.replace("\n", "").isprintable()
    _, shown, caret = err.splitlines()[:3]
    assert len(shown) == len("  HloModule [31m      m")
    assert set(caret) <= set(" ^~")
