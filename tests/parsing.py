"""Parsing a few instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo2graph.frontend import parse
from hlo2graph.hlo import Instruction, Literal, Module


def entry(*lines: str) -> Module:
    """Parse instructions as an entry computation, which has f32[4] parameters x and y."""
    head = ["ENTRY main {", "x = f32[4] parameter(0)", "y = f32[4] parameter(1)"]
    return parse("\n".join([*head, *lines, "}"]))


def one(*lines: str) -> Instruction:
    """Parse instructions and return the last."""
    return entry(*lines).entry.instructions[-1]


def constant(shape: str, literal: str) -> np.ndarray[Any, Any]:
    payload = one(f"c = {shape} constant({literal})").payload
    assert isinstance(payload, Literal)
    assert payload.array is not None
    return payload.array
