"""A BufferAssignment as text, for looking at: allocations, and where each value lives."""

from __future__ import annotations

from collections.abc import Iterator

from hlo2graph.program.buffers import BufferAssignment


def format_buffers(buffers: BufferAssignment) -> str:
    """Return the text; values are named as in the text of the stages before."""
    return "\n".join(_lines(buffers)) + "\n"


def _lines(buffers: BufferAssignment) -> Iterator[str]:
    arena = buffers.arena
    yield f"arena {arena.size}, lower_bound={arena.lower_bound}, sum={arena.sum}"
    for index, allocation in enumerate(buffers.allocations):
        owner = f", {allocation.owner}" if allocation.owner else ""
        yield f"allocation {index}: {allocation.size}, {allocation.kind}{owner}"
    for value, place in sorted(buffers.slices.items()):
        label = f", {buffers.labels[value]}" if value in buffers.labels else ""
        yield f"v{value}: {place}{label}"
    yield from (f"alias {line}" for line in buffers.aliases)
