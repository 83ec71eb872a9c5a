"""Plans that earlier compilations left beside their kernels, found again by the text they are of.

Whoever compiles a text again, with the same options and by the same code of ours, gets its plan and
the texts of its kernels without parsing or planning anything. Entries are of this one release: the
files of `save` are what others read.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from os import scandir
from pathlib import Path
from typing import Any

from hlo2graph import BEGUN, __version__
from hlo2graph.backends.cuda.cache import MOST_BYTES, entry, load, store, trim
from hlo2graph.backends.cuda.compiler import start_helpers
from hlo2graph.backends.cuda.kernels import KernelKey, Texts
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.collector import paused
from hlo2graph.errors import Source
from hlo2graph.program.plan import Plan
from hlo2graph.saved.codec import ALIGNED, PLAIN, Decoder, Encoder
from hlo2graph.saved.reading import UNREADABLE

CLASSES = (KernelKey, KernelSource)
LARGEST = MOST_BYTES // 8  # bytes of one entry
_SIZES = struct.Struct(f"<QQ{ALIGNED - 16}x")  # of packed JSON, of texts; then come arrays
_CODE = (".py", ".cuh", ".lark")


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, and the kernels that were written for it."""

    plan: Plan
    kernels: Mapping[KernelKey, KernelSource]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the plan of one text, made with certain options, is kept."""

    path: Path
    source: Source

    def read(self) -> Found | None:
        """Return what is there, its spans in `source`."""
        held = load(self.path)
        if held is None:
            return None
        try:
            with paused():
                return self._decoded(held)
        except (*UNREADABLE, struct.error):
            return None

    def write(self, plan: Plan, kernels: Mapping[KernelKey, KernelSource]) -> None:
        """Keep a plan and its kernels, if they are not too large, and the folder small."""
        if sum(a.size for a in plan.allocations if a.literal is not None) > LARGEST:
            return
        try:
            whole = self._encoded(plan, kernels)
        except RecursionError:  # loops in loops in loops: to plan it again is no harm
            return
        if len(whole) <= LARGEST:
            store(self.path, whole)
            trim(self.path.parent)

    def _encoded(self, plan: Plan, kernels: Mapping[KernelKey, KernelSource]) -> bytes:
        encoder = Encoder(CLASSES, self.source.text)
        texts = [source.text.encode() for source in kernels.values()]
        found = [encoder(plan), [encoder(key) for key in kernels], [*map(len, texts)]]
        found.append([encoder(replace(source, text="")) for source in kernels.values()])
        held = json.dumps([*found, encoder.fields, encoder.shared], separators=(",", ":"))
        parts = [zlib.compress(held.encode(), 1), b"".join(texts)]
        parts.append(bytes(-sum(map(len, parts)) % ALIGNED))
        return b"".join((_SIZES.pack(*map(len, parts[:2])), *parts, *encoder.data))

    def _decoded(self, held: bytes) -> Found:
        start = _SIZES.size
        packed, written = _SIZES.unpack_from(held)
        end = start + packed + written
        plan, keys, sizes, sources, fields, shared = json.loads(
            zlib.decompress(held[start : start + packed])
        )
        data = memoryview(held)[end + -end % ALIGNED :]
        decode = _Decoder(fields, data, shared, CLASSES, self.source)
        kernels = {}
        at = start + packed
        for key, size, source in zip(keys, sizes, sources, strict=True):
            text = held[at : at + size].decode()
            kernels[decode(key)] = replace(decode(source), text=text)
            at += size
        return Found(decode(plan), kernels)


class _Decoder(Decoder):
    """Takes what this very code has written: all fields are there, in order and of their types."""

    def _maker(self, of: type, written: list[str]) -> Callable[[Any], object]:
        del written
        return lambda values: of(*[v if type(v) in PLAIN else self(v) for v in values])


def place_of(text: str, filename: str, *chosen: str) -> Place | None:
    """Return where the plan of a text is kept that was made as `chosen`.

    None where nothing is kept, and where one cannot tell whether our code changed.
    """
    code = _code_digest()
    path = entry("plan", code, *chosen, text) if code else None
    return Place(path, Source(filename, text)) if path else None


def planned_once(place: Place | None, make: Callable[[], Plan]) -> tuple[Plan, Texts]:
    """Return the plan at a place, else a new one, and the kernels kept beside it.

    A new one is kept as soon as its kernels are written; what compiles them is started before it is
    made.
    """
    found = place.read() if place else None
    if found is None:
        start_helpers()
        found = Found(make(), {})
    return found.plan, Texts(found.kernels, partial(place.write, found.plan) if place else None)


@cache
def _code_digest() -> str:
    """Return what changes when our code does: names, sizes and times of its files.

    Nothing where it lies in no folder, where files come and go meanwhile, and where it changed
    since this process began to load it: then what runs here is not what is there.
    """
    folder = files("hlo2graph")
    if not isinstance(folder, Path):
        return ""
    grammars = folder / "grammars"
    folders = (folder, grammars if grammars.is_dir() else folder.parent / "grammars")
    try:
        found = sorted(file for inner in folders for file in _files(inner))
    except OSError:
        return ""
    if any(changed > BEGUN for *_, changed in found):
        return ""
    return f"{__version__} {found}"


def _files(folder: Path) -> Iterator[tuple[str, int, float]]:
    """Yield the path, size and time of change of what our code is made of."""
    with scandir(folder) as found:
        for file in found:
            if file.is_dir():
                yield from _files(Path(file.path))
            elif file.name.endswith(_CODE):
                about = file.stat()
                yield file.path, about.st_size, about.st_mtime
