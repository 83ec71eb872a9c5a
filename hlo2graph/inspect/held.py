"""What an executable holds of its GPU's memory, in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hlo2graph.inspect.figures import bytes_text, plural

if TYPE_CHECKING:
    from hlo2graph.backends.held import Memory


def memory_text(memory: Memory) -> str:
    """Return one line: the bytes, what for, and what the driver took for graphs."""
    parts = {
        "parameters": memory.parameters,
        "constants": memory.constants,
        "results": memory.results,
        "temporaries": memory.temporaries,
    }
    listed = [f"{name} {bytes_text(size)}" for name, size in parts.items() if size]
    listed += [f"in {memory.instances} instances"] if memory.instances > 1 else []
    line = ": ".join([bytes_text(memory.total), *([", ".join(listed)] if listed else [])])
    if memory.sharers:
        others = ", ".join(memory.sharers)
        line += f"; an arena of {bytes_text(memory.shared)} shared by {others}"
    if memory.in_graphs:
        line += f"; arenas that graphs allocate {bytes_text(memory.in_graphs)}"
    if not memory.graphs:
        return line
    taken = bytes_text(memory.driver) if memory.driver else "nothing more"
    return f"{line}; {plural(memory.graphs, 'graph')}, for which the driver took {taken}"


def memory_json(memory: Memory) -> dict[str, Any]:
    """Return the bytes for programs."""
    return {**asdict(memory), "sharers": list(memory.sharers), "total": memory.total}
