"""Option values with units: `64MiB`, `500ms`, `50,90,99`."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

import click

from hlo2graph.options import QUANTITY, read_size

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


class Number(click.FloatRange):
    """A float within bounds; NaN, which no bound refuses, is none."""

    def convert(
        self,
        value: Any,  # noqa: ANN401, as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


def size(text: str) -> int:
    """Return bytes: `4096`, `64KiB`, `1.5MB`."""
    try:
        return read_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def seconds(unit: str) -> Callable[[str], float]:
    """Return a reader of lengths of time; a bare number is in `unit`."""

    def read(text: str) -> float:
        found = QUANTITY.fullmatch(text)
        if not found or (found[2] or unit) not in SECONDS:
            raise click.BadParameter(
                f"{text!r} is no length of time; write a number of {unit}, or a unit, as in "
                "500ms, 2s"
            )
        return float(found[1]) * SECONDS[found[2] or unit]

    return read


def percentiles(text: str) -> tuple[float, ...]:
    """Return percentiles as given, commas between: `50,90,99`."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 <= p <= 100 for p in found):
        raise click.BadParameter(
            f"{text!r} is no list of percentiles; write some of 0 to 100, as in 50,90,99"
        )
    return found
