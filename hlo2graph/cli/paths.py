"""Paths on the command line: of what is read, and of what is written, which needs a place."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import click


class Named(click.Path):
    """A path. What is wrong with what is there is said by who opens it, as one kind of error."""

    def convert(
        self,
        value: Any,  # noqa: ANN401, as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """Return the path."""
        path = str(super().convert(value, param, ctx))
        if not path:
            self.fail("an empty text names no file", param, ctx)
        return path


class Written(Named):
    """A file to write, for which there is a place: said at once, before any work is done.

    `-` is stdout where the command writes text there.
    """

    def __init__(self, *, stdout: bool = True) -> None:
        super().__init__()
        self._stdout = stdout

    def convert(
        self,
        value: Any,  # noqa: ANN401, as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """Return the path. Raises OSError, as writing there would, where nothing can be written."""
        path = super().convert(value, param, ctx)
        if path != "-":
            _need_place(path, str((ctx and ctx.params.get("dump")) or ""))
        elif not self._stdout:
            self.fail("this does not go to stdout; name a file", param, ctx)
        return path


def is_svg(output: str | None) -> bool:
    """Tell whether what is written there is a drawing."""
    return output is not None and output.lower().endswith(".svg")


def _need_place(path: str, made: str) -> None:
    """Raise OSError where no file can be written; the folder `made` is made before, if need be."""
    home = Path(os.path.realpath(path)).parent
    if os.path.isdir(path):
        code = errno.EISDIR
    elif os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device
        code = 0 if os.access(path, os.W_OK) else errno.EACCES
    elif made and home == Path(os.path.realpath(made)) and not home.exists():
        code = 0
    elif not home.is_dir():
        code = errno.ENOTDIR if home.exists() else errno.ENOENT
    else:
        code = 0 if os.access(home, os.W_OK) else errno.EACCES
    if code:
        raise OSError(code, os.strerror(code), path)
