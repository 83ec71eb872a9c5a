"""Python's collector of garbage, which finds none in what we make."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Pause it: trees, modules and plans have no cycles, and walking them again costs more.

    It walks everything else in the process too: beside a large library, as long as planning takes.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
