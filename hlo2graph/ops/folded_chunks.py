"""What passes say of a scatter of sorted updates that are folded in chunks, in its backend_config.

Updates are taken in chunks of so many, beginning with the first. Where all of a whole chunk are of
one row, the first of them is what they come to, and the others change nothing: a kernel may leave
them out.
"""

from __future__ import annotations

from hlo2graph.hlo import Instruction
from hlo2graph.hlo.attributes import Raw
from hlo2graph.ops.custom_target import json_config

_PART, _NAME = "folded_chunks", "chunk"


def chunk_config(chunk: int) -> Raw:
    """Return the backend_config of a scatter that is folded in chunks of so many updates."""
    return Raw(f'{{"{_PART}": {{"{_NAME}": {chunk}}}}}')


def chunk_of(instr: Instruction) -> int | None:
    """Return how many updates each chunk of a scatter has, or None where there are no chunks."""
    if instr.opcode != "scatter" or _PART not in str(instr.attrs.get("backend_config", "")):
        return None
    chunk = (json_config(instr, _PART) or {}).get(_NAME)
    return chunk if type(chunk) is int and 1 < chunk < 2**31 else None
