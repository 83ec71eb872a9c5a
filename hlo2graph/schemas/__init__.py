"""JSON Schemas of what the commands print for programs: one file a document, NAME.json.

Every document says which it is, as `"schema": {"name": "hlo2graph.NAME", "version": N}`. Within a
version members may be added and none is removed or given another meaning or type, so a reader skips
what it does not know; anything else is a new version.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def names() -> tuple[str, ...]:
    """Return the names of the documents: plan, run, ..."""
    found = (f.name for f in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in found if name.endswith(".json")))


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the document `hlo2graph.NAME`."""
    found: dict[str, Any] = json.loads((files(__name__) / f"{name}.json").read_text())
    return found
