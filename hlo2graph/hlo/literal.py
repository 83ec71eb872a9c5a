"""The value of a constant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from hlo2graph.hlo.shape import Shape


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """An array constant; `array` is None where the text elided it as `{...}`.

    `at` is where in the text that was, which tells such constants apart.
    """

    shape: Shape
    array: np.ndarray | None
    at: int = field(default=0, kw_only=True)

    @property
    def is_elided(self) -> bool:
        """The text did not hold the values."""
        return self.array is None

    def __eq__(self, other: object) -> bool:
        """Equal bits: NaN equals NaN of the same payload, -0 differs from 0."""
        if not isinstance(other, Literal):
            return NotImplemented
        if self.shape != other.shape or (self.array is None) is not (other.array is None):
            return False
        return (
            self.array is None
            or other.array is None
            or self.array.tobytes() == other.array.tobytes()
        )

    def __hash__(self) -> int:
        return hash((self.shape, None if self.array is None else self.array.tobytes()))


AnyLiteral: TypeAlias = Literal | tuple["AnyLiteral", ...]
