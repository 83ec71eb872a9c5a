"""A Graphviz graph to a picture, by Graphviz."""

from __future__ import annotations

from hlo2graph.errors import BackendError, InputError

FORMATS = ("svg", "png", "pdf")
MOST_LINES = 6000  # Graphviz takes most of a minute for 2,000 nodes, and hours for 20,000


def render(dot_text: str, format: str) -> bytes:
    """Return the picture of a graph in Graphviz's language as an svg, png or pdf file.

    Raises InputError for another format, or for a graph that Graphviz would not finish;
    BackendError where Graphviz is missing or fails.
    """
    if format not in FORMATS:
        raise InputError(
            f"a graph is written as dot or drawn as {', '.join(FORMATS)}, not {format!r}"
        )
    if dot_text.count("\n") > MOST_LINES:
        raise InputError(
            "Graphviz cannot draw so large a graph in reasonable time; draw a part (--limit 1000, "
            "--depth 0, --computation NAME), or write the graph itself with -o FILE.dot"
        )
    try:
        import graphviz
    except ImportError:
        raise BackendError(
            "drawing needs Graphviz's Python package: pip install 'hlo2graph[draw]'"
        ) from None
    try:
        picture: bytes = graphviz.Source(dot_text).pipe(format=format, quiet=True)
    except graphviz.ExecutableNotFound:
        raise BackendError(
            "drawing needs Graphviz's program dot: apt-get install graphviz, brew install "
            "graphviz, or see https://graphviz.org/download; `-o FILE.dot` needs neither"
        ) from None
    except graphviz.CalledProcessError as error:
        raise BackendError(f"Graphviz failed: {error}") from None
    return picture
