"""dot and ragged-dot, as the op table takes them."""

from hlo2graph.ops.dot import DOT
from hlo2graph.ops.ragged_dot import RAGGED_DOT

CONTRACTION = (DOT, RAGGED_DOT)
