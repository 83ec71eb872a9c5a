"""A result in one line: its range, its mean, and how much of it is not a number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlo2graph.hlo import Shape
from hlo2graph.ops.spec import Array


@dataclass(frozen=True, slots=True)
class Summary:
    """What one result leaf holds; of complex numbers the magnitudes.

    low, high and mean are over the finite elements, and None where there is none.
    """

    name: str
    shape: Shape
    low: float | None
    high: float | None
    mean: float | None
    nans: int
    infinities: int

    def __str__(self) -> str:
        size = "|x| " if self.shape.dtype.is_complex else ""
        parts = []
        if self.low is None or self.high is None or self.mean is None:
            parts.append("empty" if not self.shape.elements else "nothing finite")
        elif self.shape.elements == 1:
            parts.append(f"{size}{_number(self.low)}")
        else:
            parts.append(
                f"{size}{_number(self.low)} to {_number(self.high)}, mean {_number(self.mean)}"
            )
        if self.nans:
            parts.append(f"{self.nans:,} NaN")
        if self.infinities:
            parts.append(f"{self.infinities:,} infinite")
        return ", ".join(parts)


def summarise_result(name: str, shape: Shape, array: Array) -> Summary:
    """Look through a result once."""
    if not array.size:
        return Summary(name, shape, None, None, None, 0, 0)
    with np.errstate(all="ignore"):
        values = np.abs(array) if array.dtype.kind == "c" else array.astype(np.float64)
        nans = int(np.count_nonzero(np.isnan(values)))
        infinities = int(np.count_nonzero(np.isinf(values)))
        if nans or infinities:
            values = values[np.isfinite(values)]
        if not values.size:
            return Summary(name, shape, None, None, None, nans, infinities)
        found = (float(values.min()), float(values.max()), float(values.mean()))
    return Summary(name, shape, *found, nans, infinities)


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.4g}"
