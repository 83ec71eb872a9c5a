"""The command line: thin commands over the library."""

from hlo2graph.cli.main import main

__all__ = ["main"]
