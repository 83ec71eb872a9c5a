"""The folder that compiled kernels, and plans, are kept in between processes.

An entry is named by a digest of all that it was made of, and begins with one of what it holds: any
process may write it at any time, whole or not at all, and what lost its end is not there.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

from hlo2graph.atomic import replacing

VARIABLE = "HLO2GRAPH_CACHE_DIR"
MOST_BYTES = 1 << 29  # of all entries; those that were used longest ago go first
_DIGEST_BYTES = hashlib.sha256().digest_size
_OURS = re.compile(r"\.?[0-9a-f]{64}\.(?:cubin|plan)(?:\.\d+\.\d+)?")  # or left by who was killed


def cache_folder() -> Path | None:
    """Return where entries are: $HLO2GRAPH_CACHE_DIR, or a folder in the user's cache folder.

    None where the variable is empty, and where the user has no home: containers run under numbers
    that no account has.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return _expanded(Path(chosen)) if chosen else None
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(base) / "hlo2graph"


def _expanded(folder: Path) -> Path:
    """Write out a `~` that no shell did: so it stands in a service's or a container's settings."""
    try:
        return folder.expanduser()
    except RuntimeError:  # there is no such home
        return folder


def entry(kind: str, *made_of: str) -> Path | None:
    """Return where the entry of a kind (cubin, plan) made of these texts is, or would be."""
    folder = cache_folder()
    if folder is None:
        return None
    digest = hashlib.sha256("\0".join(made_of).encode("utf-8", "surrogatepass")).hexdigest()
    return folder / f"{digest}.{kind}"


def load(path: Path | None) -> bytes | None:
    """Return what an entry holds, if it is there and as it was written.

    A file may lose its end when the machine goes down, and a driver given half a cubin may crash.
    """
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, held = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(held).digest() != digest:
        return None
    with suppress(OSError):
        os.utime(path)
    return held


def store(path: Path | None, held: bytes) -> None:
    """Write an entry; a cache that cannot be written is no error."""
    if path is None:
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as whole:
            whole.write(hashlib.sha256(held).digest() + held)


def trim(folder: Path) -> None:
    """Drop entries, beginning with those used longest ago, where all together are too large."""
    found = []
    with suppress(OSError), os.scandir(folder) as files:
        for file in files:
            if _OURS.fullmatch(file.name):
                about = file.stat()
                found.append((about.st_mtime, about.st_size, file.path))
    left = sum(size for _, size, _ in found)
    if left <= MOST_BYTES:
        return
    for _, size, path in sorted(found):
        if left <= MOST_BYTES * 3 // 4:
            return
        with suppress(OSError):
            os.unlink(path)
        left -= size
