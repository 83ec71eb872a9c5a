"""Text to Module or Plan: parsing, name checks, verification."""

from hlo2graph.frontend.build import parse_computations
from hlo2graph.frontend.parse import parse, split
from hlo2graph.frontend.thunks import is_thunk_sequence, parse_plan
from hlo2graph.frontend.verify import verify

__all__ = ["is_thunk_sequence", "parse", "parse_computations", "parse_plan", "split", "verify"]
