"""Imports go one way, and each third-party library stays in its room."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "hlo2graph"

ROOMS = {
    "atomic": set(),
    "collector": set(),
    "errors": set(),
    "options": {"errors"},
    "schemas": set(),
    "hlo": {"errors"},
    "ops": {"errors", "hlo"},
    "passes": {"errors", "hlo", "ops"},
    "program": {"errors", "hlo", "ops"},
    "frontend": {"collector", "errors", "hlo", "ops", "program"},
    "backends": {"atomic", "errors", "options", "hlo", "ops", "program"},
    "importers": {"errors", "hlo", "ops", "frontend"},
    "inspect": {"atomic", "errors", "hlo", "ops", "passes", "program", "frontend", "backends"},
}
ROOMS["saved"] = {*ROOMS["backends"], "collector", "backends", "hlo2graph"}
ROOMS["pipeline"] = {*ROOMS["inspect"], "collector", "options", "saved"}
ROOMS["cli"] = {*ROOMS["pipeline"], "inspect", "pipeline", "importers", "saved", "hlo2graph"}
ROOMS["jax"] = {*ROOMS["pipeline"], "pipeline", "importers"}
ROOMS["hlo2graph"] = {"backends", "collector", "errors", "pipeline", "saved"}

LIBRARIES = {
    "numpy": {
        "hlo",
        "ops",
        "passes",
        "program",
        "frontend",
        "backends",
        "inspect",
        "importers",
        "jax",
        "saved",
    },
    "ml_dtypes": {"hlo", "ops", "frontend", "backends", "inspect"},
    "lark": {"frontend"},
    "click": {"cli"},
    "rich": {"cli"},
    "cuda": {"backends/cuda"},
    "nvmath": {"backends/cuda"},
    "graphviz": {"inspect"},
    "jax": {"inspect", "importers", "jax"},  # where it is installed
    "jaxlib": {"inspect", "importers", "jax"},
    "tensorflow": {"importers"},
}

FILES = sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> list[str]:
    """Return the dotted names that a file imports anywhere; relative imports are not used."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            found += [f"{base}.{alias.name}" for alias in node.names]
    return found


def room_of(dotted: str) -> str:
    """Return the room that a name below hlo2graph lives in."""
    parts = dotted.split(".")
    known = len(parts) > 1 and parts[1] in ROOMS
    return parts[1] if known else "hlo2graph"


def location(path: Path) -> tuple[str, str]:
    """Return a file's room and its folder below the package."""
    relative = path.relative_to(PACKAGE)
    room = relative.parts[0] if len(relative.parts) > 1 else relative.stem
    room = {"__init__": "hlo2graph", "__main__": "cli"}.get(room, room)
    return room, relative.parent.as_posix()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_go_one_way(path):
    room, folder = location(path)
    assert room in ROOMS, f"{room} is no room; say in ROOMS what it may import"
    for name in imported(path):
        top = name.split(".")[0]
        if top == "hlo2graph":
            other = room_of(name)
            assert other == room or other in ROOMS[room], f"{room} must not import {name}"
        elif top not in sys.stdlib_module_names:
            assert top in LIBRARIES, f"{top} has no room; say in LIBRARIES who may import it"
            homes = LIBRARIES[top]
            assert room in homes or any(folder.startswith(h) for h in homes), (
                f"{room} must not import {top}"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_backends_do_not_know_each_other(path):
    _, folder = location(path)
    for mine, other in (("backends/host", "cuda"), ("backends/cuda", "host")):
        if folder.startswith(mine):
            assert not [n for n in imported(path) if n.startswith(f"hlo2graph.backends.{other}")]


@pytest.mark.parametrize(
    ("source", "names"),
    [("import lark.lexer", ["lark.lexer"]), ("def f():\n  from click import a", ["click.a"])],
)
def test_finds_imports_wherever_they_stand(tmp_path, source, names):
    path = tmp_path / "x.py"
    path.write_text(source)
    assert imported(path) == names
