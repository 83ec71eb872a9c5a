"""What all tests share: the samples, and golden files."""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hlo2graph.cli import main

# A busy machine is no failure. CI draws the same cases each time: what it says is about the change
# alone, and `make fuzz` looks for new cases.
settings.register_profile(
    "patient",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("patient")

ROOT = Path(__file__).parent.parent
SAMPLES = sorted(p for p in (ROOT / "samples").iterdir() if p.suffix in (".hlo", ".thunks"))
REFUSED = {  # samples that are planned but not run here, and what the refusal names
    "collectives": ("all-gather, 2 times", "reduce-scatter", "ragged-all-to-all"),
    "host_transfers": ("infeed", "outfeed", "send", "recv", "vendor_op"),
}
RUNNABLE = [p for p in SAMPLES if p.stem not in REFUSED]
GOLDEN = ROOT / "tests" / "golden"
ADD = """\
HloModule add
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  ROOT s = f32[4] add(x, y)
}
"""
QUICK = ("--warmup", "0", "--iterations", "2", "--threads", "2")  # how `run` measures in tests
CHANGED = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew; not in CI"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CHANGED] = []
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is not for CI: golden files change with a commit")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.getoption("--update-golden"):
        changed = terminalreporter.config.stash[CHANGED]
        terminalreporter.section(f"{len(changed)} golden files changed")
        terminalreporter.write("".join(f"{line}\n" for line in sorted(changed)))


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process; return exit code, stdout, stderr."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hlo2graph", *map(str, args)])
        interrupts = signal.getsignal(signal.SIGINT)
        monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
        with pytest.raises(SystemExit) as ended:
            main()
        signal.signal(signal.SIGINT, interrupts)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return ended.value.code or 0, out, err

    return run


@pytest.fixture
def add(tmp_path):
    path = tmp_path / "add.hlo"
    path.write_text(ADD)
    return path


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[str, str | None], None]:
    """Compare a text with a file below tests/golden; None means that no such file may be there."""

    def check(name: str, text: str | None) -> None:
        path = GOLDEN / name
        held = path.read_text() if path.exists() else None
        if text == held:
            return
        if pytestconfig.getoption("--update-golden"):
            pytestconfig.stash[CHANGED].append(_write(path, text, held))
            return
        if text is None:
            pytest.fail(f"{name} belongs to no sample; run `make golden`", pytrace=False)
        if held is None:
            pytest.fail(f"{name} is missing; run `make golden`", pytrace=False)
        difference = difflib.unified_diff(
            held.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm=""
        )
        shown = "\n".join(difference)
        pytest.fail(f"{shown}\nif this is meant, run `make golden`", pytrace=False)

    return check


def _write(path: Path, text: str | None, held: str | None) -> str:
    if text is None:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
        return f"removed {path.relative_to(ROOT)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return f"{'wrote' if held is None else 'changed'} {path.relative_to(ROOT)}"
