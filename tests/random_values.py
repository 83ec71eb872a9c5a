"""The values of random modules, and how a computation is written."""

from __future__ import annotations

from typing import NamedTuple


class Value(NamedTuple):
    """An instruction that may be an operand."""

    name: str
    dtype: str
    dims: tuple[int, ...]


def braced(lines: list[str]) -> str:
    """Return the body of a computation."""
    return "{\n  " + "\n  ".join(lines) + "\n}\n"
