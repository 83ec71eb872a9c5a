"""What the commands read and write: modules in, whole files out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from hlo2graph.errors import ParseError
from hlo2graph.options import Observer

SEPARATOR = "// -----"


@dataclass(frozen=True, slots=True)
class Input:
    """A text, and the name it has in errors."""

    filename: str
    text: str


def read_file(path: str) -> Input:
    """Return the text of a file, or of stdin for `-`."""
    if path == "-":
        return Input("<stdin>", _decoded(sys.stdin.buffer.read(), "<stdin>"))
    return Input(path, _decoded(Path(path).read_bytes(), path))


def modules_in(whole: Input) -> list[Input]:
    """Return the modules of a text that `// -----` lines split.

    Each later module's text begins with as many empty lines as stand before it in the whole, so
    that positions in errors are positions in the file.
    """
    parts: list[str] = []
    lines: list[str] = []
    for number, line in enumerate(whole.text.split("\n")):
        if line.strip() == SEPARATOR:
            parts.append("\n".join(lines))
            lines = [""] * (number + 1)
        else:
            lines.append(line)
    parts.append("\n".join(lines))
    filled = [Input(whole.filename, part) for part in parts if part.strip()]
    return filled or [whole]


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(
            f"{name} is not text (byte {error.start} is no UTF-8); a serialized HloModuleProto or "
            "snapshot must be printed as HLO text first: compiled.as_text() in JAX, or "
            "XLA_FLAGS=--xla_dump_hlo_as_text"
        ) from None


def joined(texts: Iterable[str]) -> str:
    """Return several modules' texts as one, which `modules_in` splits again."""
    return f"\n{SEPARATOR}\n\n".join(texts)


def write_whole(path: str, content: str | bytes) -> None:
    """Write a file that is there whole or not at all, whatever interrupts the writing."""
    data = content.encode() if isinstance(content, str) else content
    target = Path(path).resolve()
    if target.exists() and not target.is_file():  # a pipe or a device: nothing to replace
        target.write_bytes(data)
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        if target.exists():
            temporary.chmod(target.stat().st_mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def emit(text: str, path: str | None) -> None:
    """Write `text` to a file, or to stdout where `path` is None or `-`."""
    if path is None or path == "-":
        click.echo(text.removesuffix("\n"))
    else:
        write_whole(path, text if text.endswith("\n") else text + "\n")


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
