"""Errors in the form that makes a code host mark the lines at fault."""

from __future__ import annotations

import os
from pathlib import Path

from hlo2graph.errors import Span

FORMS = ("github",)
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = _DATA | str.maketrans({":": "%3A", ",": "%2C"})


def github(message: str, span: Span | None = None, file: str | None = None) -> str:
    """Return the workflow command that shows `message` at `span`, or on all of `file`.

    Files are named from the workspace on, as GitHub has it, wherever the command runs. What is
    in no file, stdin for one, has its place in the message.
    """
    place: dict[str, str | int] = {}
    if span is not None and not Path(span.source.name).is_file():
        message = f"{span}: {message}"
    elif span is not None:
        line, column = span.source.locate(span.start)
        place = {"file": _from_workspace(span.source.name), "line": line, "col": column}
    elif file is not None and Path(file).is_file():
        place = {"file": _from_workspace(file)}
    properties = ",".join(
        f"{key}={str(value).translate(_PROPERTY)}" for key, value in place.items()
    )
    return f"::error{' ' * bool(properties)}{properties}::{message.rstrip().translate(_DATA)}"


def _from_workspace(path: str) -> str:
    return os.path.relpath(path, os.environ.get("GITHUB_WORKSPACE") or ".").replace(os.sep, "/")
