"""What is going on, on stderr, for a person who has waited a second already."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hlo2graph.cli.voice import voice

if TYPE_CHECKING:
    from rich.status import Status

PATIENCE = 1.0  # seconds before anything shows


class Progress:
    """A line on stderr, once there has been enough waiting; none with --quiet or off a terminal."""

    def __init__(self, doing: str) -> None:
        self._doing = self._said = doing
        self._shown: Status | None = None
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True
        if sys.stderr.isatty() and not voice().quiet:
            self._timer.start()

    def say(self, what: str) -> None:
        """Say what it has come to."""
        self._said = f"{self._doing}: {what}"
        if self._shown is not None:
            self._shown.update(self._said)

    def hold(self) -> None:
        """Stop for good: from here on time is measured, and nothing else may take any."""
        if self._timer.is_alive():
            self._timer.cancel()
            self._timer.join()
        if self._shown is not None:
            self._shown.stop()
            self._shown = None

    def _show(self) -> None:
        from rich.console import Console

        shown = Console(stderr=True).status(self._said)
        shown.start()
        self._shown = shown


@contextmanager
def progress(doing: str) -> Iterator[Progress]:
    """Show `doing` while the body runs."""
    shown = Progress(doing)
    try:
        yield shown
    finally:
        shown.hold()
