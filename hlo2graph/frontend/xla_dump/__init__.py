"""XLA's dump files, read-only: what XLA made of a module, thunk by thunk."""

from hlo2graph.frontend.xla_dump.assignment import parse_assignment
from hlo2graph.frontend.xla_dump.files import Dump, dumps_called, find_dumps
from hlo2graph.frontend.xla_dump.model import (
    Leaf,
    Printed,
    XlaAllocation,
    XlaBuffers,
    XlaKind,
    XlaThunk,
    walk,
)
from hlo2graph.frontend.xla_dump.printed import PrintedGraph, parse_printed
from hlo2graph.frontend.xla_dump.sequence import parse_sequence
from hlo2graph.frontend.xla_dump.thunks import build_thunks

__all__ = [
    "Dump",
    "Leaf",
    "Printed",
    "PrintedGraph",
    "XlaAllocation",
    "XlaBuffers",
    "XlaKind",
    "XlaThunk",
    "build_thunks",
    "dumps_called",
    "find_dumps",
    "parse_assignment",
    "parse_printed",
    "parse_sequence",
    "walk",
]
