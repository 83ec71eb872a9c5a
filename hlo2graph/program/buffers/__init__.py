"""Program to BufferAssignment: every value gets its bytes."""

from hlo2graph.program.buffers.assign import BufferAssignment, assign_buffers

__all__ = ["BufferAssignment", "assign_buffers"]
