"""What is going on, on stderr, for a person who has waited a second already."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hlo2graph.cli.voice import voice

if TYPE_CHECKING:
    from rich.status import Status

PATIENCE = 1.0  # seconds before anything shows
LONG = 5.0  # seconds of one thing before it is said that it takes long


class Progress:
    """A line on stderr, once there has been enough waiting; none with --quiet or off a terminal.

    Off a terminal too it says what takes long, a line each; `silent` says nothing at all.
    """

    def __init__(self, doing: str, *, silent: bool = False) -> None:
        self._doing = self._said = doing
        self._voice = voice()
        self._is_silent = silent or self._voice.quiet
        self._shown: Status | None = None
        self._timer = _later(PATIENCE, self._show)
        self._long: threading.Timer | None = None
        if sys.stderr.isatty() and not self._is_silent:
            self._timer.start()

    def say(self, what: str, if_long: str = "") -> None:
        """Say what it has come to, and `if_long` if it stays there."""
        self._end_long()
        self._said = f"{self._doing}: {what}"
        if self._shown is not None:
            self._shown.update(self._said)
        if if_long:
            self._long = _later(LONG, lambda: self.note(if_long))
            self._long.start()

    def note(self, text: str) -> None:
        """Say what is good to know for who waits."""
        if not self._is_silent:
            self._voice.note(f"note: {text}")

    def hold(self) -> None:
        """Stop for good: from here on time is measured, and nothing else may take any."""
        self._end_long()
        _stop(self._timer)
        if self._shown is not None:
            self._shown.stop()
            self._shown = None

    def _end_long(self) -> None:
        if self._long is not None:
            _stop(self._long)

    def _show(self) -> None:
        from rich.console import Console

        shown = Console(stderr=True).status(self._said)
        shown.start()
        self._shown = shown


def _later(seconds: float, what: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    return timer


def _stop(timer: threading.Timer) -> None:
    if timer.is_alive():
        timer.cancel()
        timer.join()


@contextmanager
def progress(doing: str, *, silent: bool = False) -> Iterator[Progress]:
    """Show `doing` while the body runs."""
    shown = Progress(doing, silent=silent)
    try:
        yield shown
    finally:
        shown.hold()
