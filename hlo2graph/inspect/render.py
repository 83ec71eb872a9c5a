"""A picture as a file of any format: Graphviz's language, what Graphviz draws, JSON, Mermaid."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from hlo2graph.errors import BackendError, InputError
from hlo2graph.inspect.dot import dot_text
from hlo2graph.inspect.graph_formats import json_text, mermaid_text
from hlo2graph.inspect.picture import Picture

TEXTS = ("dot", "json", "mmd")
DRAWN = ("svg", "png", "pdf")
FORMATS = (*TEXTS, *DRAWN)
PROGRAM = (
    "program dot: apt-get install graphviz, brew install graphviz, or see "
    "https://graphviz.org/download; .dot, .html, .json and .mmd need neither"
)
MOST_LINES = 6000  # Graphviz takes most of a minute for 2,000 nodes, and hours for 20,000


def written(picture: Picture, format: str, colour: str = "kind") -> str | bytes:
    """Return the file: text, or what Graphviz draws.

    Raises InputError for another format and for a colour that is none; see `render` too.
    """
    match format:
        case "dot":
            return dot_text(picture, colour)
        case "json":
            return json_text(picture)
        case "mmd":
            return mermaid_text(picture, colour)
        case _:
            return render(dot_text(picture, colour), format)


def check_format(format: str, known: Sequence[str] = FORMATS) -> None:
    """Raise InputError for what a graph is not written as."""
    if format not in known:
        others = ", ".join(f".{name}" for name in ("dot", "gv", *FORMATS[1:], "html"))
        raise InputError(f"a graph is written as {others}, by the file's suffix, not .{format}")


def render(dot_text: str, format: str) -> bytes:
    """Return the picture of a graph in Graphviz's language as an svg, png or pdf file.

    Raises InputError for another format, or for a graph that Graphviz would not finish;
    BackendError where Graphviz is missing or fails.
    """
    check_format(format, DRAWN)
    if dot_text.count("\n") > MOST_LINES:
        raise InputError(
            "Graphviz cannot draw so large a graph in reasonable time; draw a part (--fold, "
            "--around NAME, --limit 1000, --depth 0, --computation NAME), or write it as .html, "
            "which shows any number of nodes, or as .dot"
        )
    try:
        import graphviz
    except ImportError:
        package = "Python package: pip install 'hlo2graph[draw]'"
        missing = [package] if shutil.which("dot") else [package, PROGRAM]
        raise BackendError(f"drawing needs Graphviz's {'; and its '.join(missing)}") from None
    try:
        picture: bytes = graphviz.Source(dot_text).pipe(format=format, quiet=True)
    except graphviz.ExecutableNotFound:
        raise BackendError(f"drawing needs Graphviz's {PROGRAM}") from None
    except graphviz.CalledProcessError as error:
        raise BackendError(f"Graphviz failed: {error}") from None
    return picture
