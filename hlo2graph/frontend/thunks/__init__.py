"""Thunk-sequence text to Plan."""

from hlo2graph.frontend.thunks.parse import is_thunk_sequence, parse_plan

__all__ = ["is_thunk_sequence", "parse_plan"]
