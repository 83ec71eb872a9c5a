"""Finds a grammar, in an installed package as in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


def read_grammar(name: str) -> str:
    """Return the text of grammars/`name`."""
    installed = _PACKAGE / "grammars" / name
    checkout = _PACKAGE.parent / "grammars" / name
    return (installed if installed.exists() else checkout).read_text(encoding="utf-8")
