"""gather and scatter, as the op table takes them."""

from hlo2graph.ops.gather import GATHER
from hlo2graph.ops.scatter import SCATTER

INDEXING = (GATHER, SCATTER)
