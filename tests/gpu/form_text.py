"""What the programs of kernel forms are written with."""

from __future__ import annotations

from collections.abc import Callable

from hlo2graph.hlo import DTYPES

LOOP, TURNED = 0.85, 0.75  # of the bandwidth of a copy
Forms = dict[str, tuple[Callable[[int], str], float | None]]
"""By name: what writes the text for arrays of so many bytes, and the part of a copy to reach."""


def module(body: str, *regions: str) -> str:
    return "HloModule m\n" + "".join(regions) + f"ENTRY e {{\n{body}\n}}\n"


def region(name: str, opcode: str, dtype: str) -> str:
    return (
        f"{name} {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) "
        f"ROOT r = {dtype}[] {opcode}(a, b) }}\n"
    )


def matrix(size: int, dtype: str, columns: int) -> str:
    return f"{dtype}[{size // DTYPES[dtype].size // columns},{columns}]"
