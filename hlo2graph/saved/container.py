"""The bytes of a .h2g file: a start that never changes, a header, sections, one checksum.

    0   8   MAGIC
    8   4   version of all that follows, little-endian, as every number here
    12  4   zeros
    16  8   length of the whole file
    24  32  SHA-256 of all other bytes
    56  8   length of the header
    64      the header, JSON: "writer" (hlo2graph 0.2.0), "sections" {name: [offset, bytes, "" or
            "zlib"]} and what the writer adds; then the sections, each on a whole 64 bytes, at
            offsets that count from the first

Every version of the format keeps these first 64 bytes and the header's "writer", so that a release
can say of a file that it cannot read who wrote it, and tell it from one that is damaged.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from hlo2graph.atomic import replacing
from hlo2graph.errors import InputError

MAGIC = b"\x89H2G\r\n\x1a\n"  # no text, and not what is left of it where line ends were changed
VERSION = 1
START = struct.Struct("<8sIIQ32sQ")
DIGEST = slice(24, 56)
WHOLE = 64  # bytes that sections begin on a multiple of

Bytes: TypeAlias = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a file, in pieces; those of a `packed` one are compressed together."""

    pieces: Sequence[Bytes]
    packed: bool = True


@dataclass(frozen=True, slots=True)
class Container:
    """A file that was read: its header, and its sections by name."""

    filename: str
    header: Mapping[str, Any]
    _body: memoryview

    def section(self, name: str) -> Bytes:
        """Return what a section holds. Raises KeyError, ValueError or zlib.error."""
        offset, size, how = self.header["sections"][name]
        held = self._body[offset : offset + size]
        if how not in ("", "zlib") or len(held) != size:
            raise ValueError(f"section {name} is {how!r} of {size} bytes")
        return zlib.decompress(held) if how else held

    def json(self, name: str) -> Any:  # noqa: ANN401, as json.loads has it
        """Return what the JSON of a section says."""
        return json.loads(bytes(self.section(name)))


def is_saved(data: bytes) -> bool:
    """Tell whether data begins as a .h2g file does."""
    return data.startswith(MAGIC)


def write_container(
    path: Path, writer: str, header: Mapping[str, object], sections: Mapping[str, Section]
) -> None:
    """Write a file, whole or not at all."""
    held = {name: _packed(section) for name, section in sections.items()}
    table: dict[str, list[object]] = {}
    end = 0
    for name, pieces in held.items():
        size = sum(map(len, pieces))
        table[name] = [end, size, "zlib" if sections[name].packed else ""]
        end += size + _gap(size)
    text = json.dumps({"writer": writer, **header, "sections": table}).encode()
    length = START.size + len(text) + _gap(START.size + len(text)) + end
    start = START.pack(MAGIC, VERSION, 0, length, bytes(32), len(text))
    digest = hashlib.sha256(start[: DIGEST.start] + start[DIGEST.stop :])
    for piece in _following(text, held):
        digest.update(piece)
    start = START.pack(MAGIC, VERSION, 0, length, digest.digest(), len(text))
    with replacing(path) as whole:
        whole.write(start)
        whole.writelines(_following(text, held))


def read_container(data: bytes, filename: str) -> Container:
    """Return what a file holds, checked as a whole.

    Raises:
        InputError: it is none, not whole, damaged, or of a version that this release cannot read.
    """
    view = memoryview(data)
    if not is_saved(data):
        raise InputError(f"{filename}: no .h2g file: it does not begin as one does")
    if len(data) < START.size:
        raise InputError(f"{filename}: cut off: a .h2g file has more than its {len(data)} bytes")
    _, version, _, length, digest, header_size = START.unpack_from(data)
    found = hashlib.sha256(view[: DIGEST.start])
    found.update(view[DIGEST.stop :])
    if found.digest() != digest:
        raise InputError(f"{filename}: {_damage(len(data), length)}")
    header = _header(view[START.size : START.size + header_size])
    if version != VERSION:
        writer = header.get("writer", "another release")
        raise InputError(
            f"{filename}: format version {version}, written by {writer}; this release reads "
            f"version {VERSION}: {'update hlo2graph, or ' if version > VERSION else ''}compile "
            "the program anew"
        )
    end = START.size + header_size
    return Container(filename, header, view[end + _gap(end) :])


def _damage(found: int, length: int) -> str:
    if found < length:
        return f"cut off: {found:,} of its {length:,} bytes are there"
    if found > length:
        return f"damaged: {found:,} bytes, where {length:,} were written"
    return "damaged: its checksum is not that of what it holds"


def _header(text: memoryview) -> Mapping[str, Any]:
    """Return the header; an empty one where it is none, which no writer leaves."""
    try:
        found = json.loads(bytes(text))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _packed(section: Section) -> Sequence[Bytes]:
    if not section.packed:
        return section.pieces
    packer = zlib.compressobj()
    return [*(packer.compress(piece) for piece in section.pieces), packer.flush()]


def _following(text: bytes, held: Mapping[str, Sequence[Bytes]]) -> Iterator[Bytes]:
    """Yield what is behind the start."""
    yield text
    yield bytes(_gap(START.size + len(text)))
    for pieces in held.values():
        yield from pieces
        yield bytes(_gap(sum(map(len, pieces))))


def _gap(size: int) -> int:
    return -size % WHOLE
