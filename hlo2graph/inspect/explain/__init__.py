"""Why two thunks are ordered, or that they are not; which edges only memory asked for."""

from hlo2graph.inspect.explain.answers import (
    Answer,
    explain_critical_path,
    explain_false_edges,
    explain_pair,
)
from hlo2graph.inspect.explain.left_out import explain_left_out

__all__ = [
    "Answer",
    "explain_critical_path",
    "explain_false_edges",
    "explain_left_out",
    "explain_pair",
]
