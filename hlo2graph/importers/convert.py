"""Bytes of a file to HLO text, whatever form the program has in them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from json import dumps
from typing import TYPE_CHECKING

from hlo2graph.errors import BackendError, InputError, ParseError, Source, Span
from hlo2graph.frontend.identify import is_mlir
from hlo2graph.importers import worker
from hlo2graph.importers.flat import BYTECODE, exported_module
from hlo2graph.importers.protos import begins_like_proto, peel
from hlo2graph.importers.resources import inlined
from hlo2graph.importers.wire import WireError

if TYPE_CHECKING:
    from hlo2graph.ops.spec import Array

STABLEHLO, PROTO = "StableHLO", "an HLO proto"
EXPORTED = "StableHLO that jax.export serialized"
SAVED_MODEL = b"\x08\x01\x12"  # saved_model_schema_version 1, then the graphs
LOOKED_AT = 4096  # bytes, in which a binary file has some that no text has
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_PLACED = re.compile(r"(?:^|: )(\S+?):(\d+):(\d+): error: ([^\n]*)", re.MULTILINE)
_STATUS = re.compile(r"^[A-Z_]+: ")  # XLA's name for the kind of an error
_OPEN_TENSOR = re.compile(r"tensor<(?:\d+x)*\?[^>\s]*>")
_OPEN_SIZE = re.compile(r"\w+\[[^\]\s]*\?[^\]\s]*\]")
UNNAMED = "-"  # what jaxlib calls the file that a text is in
_NO_FILE = f'source_file="{UNNAMED}" '
LONGEST_REASON = 400  # characters of jaxlib's message that are passed on


@dataclass(frozen=True, slots=True)
class Imported:
    """HLO text that was made of something else, and the arguments recorded with it, if any."""

    text: str
    arguments: tuple[Array, ...] = ()


def to_hlo(data: bytes, filename: str = "<bytes>") -> Imported | None:
    """Return the HLO of StableHLO or MHLO, as text or bytecode, of an HLO proto or snapshot.

    Also of a function that `jax.export` serialized. None: `data` is none of these, so perhaps text.

    Raises:
        HloError: it is one of these, but broken.
        BackendError: jaxlib, which converts it, is not installed.
    """
    if not _BINARY.search(data[:LOOKED_AT]):
        text = data.decode(errors="surrogateescape")
        return Imported(_mlir_text(text, filename)) if is_mlir(text) else None
    if data.startswith(BYTECODE):
        return Imported(_converted(STABLEHLO, data, filename))
    if data.startswith(SAVED_MODEL):
        raise InputError(
            f"{filename}: this is a TensorFlow SavedModel; hlo2graph import --saved-model "
            "FOLDER -o model.hlo makes HLO of it"
        )
    if (module := exported_module(data)) is not None:
        return Imported(_converted(EXPORTED, module, filename))
    return _proto(data, filename) if begins_like_proto(data) else None


def _proto(data: bytes, filename: str) -> Imported:
    from hlo2graph.importers.literals import arrays_of

    try:
        peeled = peel(data)
        arguments = tuple(array for literal in peeled.arguments for array in arrays_of(literal))
    except WireError as error:
        raise ParseError(f"{filename}: this is no whole HLO proto: {error}") from None
    return Imported(hlo_of_proto(peeled.module, filename), arguments)


def hlo_of_proto(proto: bytes, filename: str) -> str:
    """Return the text of a serialized HloModuleProto.

    Raises:
        HloError: it is broken.
        BackendError: jaxlib, which converts it, is not installed.
    """
    return _converted(PROTO, proto, filename)


def _mlir_text(text: str, filename: str) -> str:
    """Return HLO text for the modules of a text, whose instructions know their lines in it."""
    from hlo2graph.frontend.parse import SEPARATOR, split

    parts = [
        _converted(STABLEHLO, inlined(part).encode(errors="surrogateescape"), filename, part)
        for part in split(text)
    ]
    return f"\n{SEPARATOR}\n\n".join(parts).replace(_NO_FILE, f"source_file={dumps(filename)} ")


def _converted(kind: str, program: bytes, filename: str, text: str | None = None) -> str:
    """Return HLO text for a program; `text` is the program where an error can be placed in it."""
    if find_spec("jaxlib") is None:
        raise BackendError(
            f"{filename}: this is {kind}, of which jaxlib makes HLO text: pip install "
            "'hlo2graph[jax]'; or print HLO text in the first place: in JAX, "
            "lowered.as_text('hlo'); elsewhere, XLA_FLAGS=--xla_dump_to=DIR --xla_dump_hlo_as_text"
        )
    done = subprocess.run(
        [sys.executable, "-P", worker.__file__, "proto" if kind == PROTO else "mlir"],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        input=program,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        _refuse(kind, done.returncode, done.stderr.decode(errors="replace"), filename, text)
    found = done.stdout.decode(errors="surrogateescape")
    head, _, _ = found.partition("\n")
    if open_size := _OPEN_SIZE.search(head):
        raise _open_size(kind, filename, open_size[0], text)
    return found


def _open_size(kind: str, filename: str, which: str, text: str | None) -> InputError:
    fix = (
        "hlo2graph import FILE --shapes f32[8,4],... -o model.hlo settles the sizes"
        if kind == EXPORTED
        else "HLO has sizes: write them in place of each ?, or lower the program for arrays of "
        "one size"
    )
    message = f"this is for arrays of any size ({which}); {fix}"
    if text is not None and (written := _OPEN_TENSOR.search(text)):
        return InputError(message, Span(Source(filename, text), *written.span()))
    return InputError(f"{filename}: {message}")


def _refuse(kind: str, code: int, said: str, filename: str, text: str | None) -> None:
    """Raise what jaxlib said, at its place in `text` where it named one."""
    if open_size := _OPEN_TENSOR.search(said):
        raise _open_size(kind, filename, open_size[0], text)
    placed = _PLACED.search(said)
    if placed and text is not None and placed[1] == UNNAMED and placed[2] != "0":
        line, column, what = int(placed[2]), int(placed[3]), placed[4]
        lines = text.split("\n")
        if line <= len(lines):
            start = sum(len(before) + 1 for before in lines[: line - 1])
            start += min(column - 1, len(lines[line - 1]))  # constants put in may lie before it
            raise ParseError(what, Span(Source(filename, text), start, start + 1))
    lines = [line for line in said.splitlines() if line.strip()]
    reason = placed[4] if placed else _STATUS.sub("", lines[-1] if lines else "it said nothing")
    if code < 0:
        reason = f"jaxlib's converter died of it (signal {-code})"
    raise ParseError(f"{filename}: this is {kind}, which cannot be read: {reason[:LONGEST_REASON]}")
