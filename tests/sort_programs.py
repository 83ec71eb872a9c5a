"""Sorts with the places of what they sort."""

from __future__ import annotations

from agreement import module


def comparator(dtype: str, direction: str, order: str = "") -> str:
    """Return the region `before` of a sort by a key, with places that come along."""
    return (
        f"before {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) i = s32[] parameter(2) "
        f"j = s32[] parameter(3) ROOT r = pred[] compare(a, b), direction={direction}{order} }}"
    )


def pairs(dims: str, along: int, dtype: str, region: str) -> str:
    """Return a sort of an array along a dimension, by the region `before`, places with it."""
    both = f"({dtype}[{dims}], s32[{dims}])"
    return module(
        f"x = {dtype}[{dims}] parameter(0) i = s32[{dims}] iota(), iota_dimension={along} "
        f"ROOT r = {both} sort(x, i), dimensions={{{along}}}, to_apply=before",
        region,
    )
