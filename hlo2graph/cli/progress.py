"""What is going on, on stderr, for a person who has waited a second already."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

PATIENCE = 1.0  # seconds before anything shows


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Show `doing` once it takes long; call what is yielded to say what it has come to.

    Shows nothing where stderr is no terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    said = doing
    shown: Status | None = None

    def show() -> None:
        nonlocal shown
        from rich.console import Console

        shown = Console(stderr=True).status(said)
        shown.start()

    def say(what: str) -> None:
        nonlocal said
        said = f"{doing}: {what}"
        if shown is not None:
            shown.update(said)

    timer = threading.Timer(PATIENCE, show)
    timer.daemon = True
    timer.start()
    try:
        yield say
    finally:
        timer.cancel()
        timer.join()
        if shown is not None:
            shown.stop()
