"""Programs that come as something else than HLO text: StableHLO, protos, JAX's exported functions.

`to_hlo` makes HLO text of a file's bytes. jaxlib's own converters do the work, in a process of
their own, because XLA ends the process that it is in on some broken inputs.
"""

from hlo2graph.importers.convert import Imported, to_hlo

__all__ = ["Imported", "to_hlo"]
