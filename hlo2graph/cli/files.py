"""What the commands read and write: modules in, whole files out."""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlo2graph.atomic import replacing
from hlo2graph.options import Observer

if TYPE_CHECKING:
    from hlo2graph.ops.spec import Array
    from hlo2graph.saved.reading import Saved

SEPARATOR = "// -----"


@dataclass(frozen=True, slots=True)
class Input:
    """A text, and the name it has in errors.

    `is_imported`: it was made of a file that holds something else, with `arguments` perhaps.
    `saved` is what a .h2g file holds, which has no text; programs.py makes plans and modules of
    either.
    """

    filename: str
    text: str
    is_imported: bool = False
    arguments: tuple[Array, ...] = ()
    saved: Saved | None = None


def read_file(path: str) -> Input:
    """Return the text of a file, or of stdin for `-`; HLO text of StableHLO, protos and snapshots.

    Bytes that are no UTF-8 are kept as lone surrogates, which the parser places and explains; a
    byte order mark in front of UTF-8 is left out.
    Raises HloError where a file that is no text cannot be made HLO text, or a .h2g file not read;
    BackendError where what makes the text is not installed.
    """
    from hlo2graph.saved.container import is_saved

    data, name = read_bytes(path)
    data = data.removeprefix(BOM_UTF8)
    if is_saved(data) or path.endswith(".h2g"):
        from hlo2graph.saved.reading import read_saved

        return Input(name, "", saved=read_saved(data, name))
    from hlo2graph.importers import to_hlo

    if (imported := to_hlo(data, name)) is not None:
        return Input(f"{name} as HLO", imported.text, True, imported.arguments)
    return Input(name, data.decode(errors="surrogateescape"))


def read_bytes(path: str) -> tuple[bytes, str]:
    """Return what is in a file, or in stdin for `-`, and its name in errors."""
    if path == "-":
        return sys.stdin.buffer.read(), "<stdin>"
    return Path(path).read_bytes(), path


def modules_in(whole: Input) -> list[Input]:
    """Return the modules of a text, each placed so that positions in errors are the file's."""
    if whole.saved is not None:
        return [whole]
    from hlo2graph.frontend import split

    return [replace(whole, text=part) for part in split(whole.text)]


def only(whole: Input, doing: str) -> Input:
    """Return the one module of a text; `doing` says in an error what takes no more."""
    first, *more = modules_in(whole)
    if more:
        raise click.UsageError(
            f"{whole.filename} holds {1 + len(more)} modules; {doing} one: keep the text of one, "
            f"between two '{SEPARATOR}' lines, in a file of its own"
        )
    return first


def joined(texts: Iterable[str]) -> str:
    """Return several modules' texts as one, which `modules_in` splits again."""
    return f"\n{SEPARATOR}\n\n".join(texts)


def write_whole(path: str, content: str | bytes) -> None:
    """Write a file that is there whole or not at all, whatever interrupts the writing."""
    with replacing(Path(path)) as whole:
        whole.write(content.encode() if isinstance(content, str) else content)


def emit(text: str, path: str | None) -> None:
    """Write `text` to a file, or to stdout where `path` is None or `-`."""
    if path is None or path == "-":
        click.echo(text.removesuffix("\n"))
    else:
        write_whole(path, text if text.endswith("\n") else text + "\n")


def emit_report(
    documents: Callable[[], list[Any]],
    text: Callable[[], str],
    json_file: str | None,
    output: str | None,
) -> None:
    """Write a report as JSON, as text, or both, as --json and --output have it.

    `documents` has one for each module. JSON on stdout is in place of text there.
    """
    to_stdout = json_file == "-" and output in (None, "-")
    if json_file is not None and json_file == output and not to_stdout:
        raise click.UsageError(f"--json and --output both name {output}")
    if json_file is not None:
        found = documents()
        emit(json.dumps(found[0] if len(found) == 1 else found, indent=2), json_file)
    if not to_stdout:
        emit(text(), output)


def dump_to(folder: str | None, part: str = "") -> Observer | None:
    """Return an observer that writes each stage's text to `folder`/NN_stage.txt.

    Several modules of one file each get a folder of their own, `part`.
    """
    if folder is None:
        return None
    home = Path(folder, part)
    home.mkdir(parents=True, exist_ok=True)
    count = 0

    def observe(stage: str, text: str) -> None:
        nonlocal count
        count += 1
        write_whole(str(home / f"{count:02}_{stage}.txt"), text)

    return observe
