"""What writers of random operations build on: parameters, shapes, regions, the module's text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Operand(NamedTuple):
    """A parameter."""

    name: str
    dtype: str
    dims: tuple[int, ...]


class Shaping:
    """A module in the making, whose entry has parameters and `lines`."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.parameters: list[str] = []
        self.lines: list[str] = []
        self.result = ""
        self._regions: dict[str, str] = {}
        self._layouts = rnd.random() < 0.3

    def text(self) -> str:
        """Return the module, the operation in a fusion of its own now and then."""
        body = "\n".join(f"  {line}" for line in (*self.parameters, *self.lines))
        head = "".join(["HloModule m\n\n", *self._regions.values()])
        if self.rnd.random() < 0.8:
            return f"{head}ENTRY e {{\n{body}\n}}\n"
        names = ", ".join(line.partition(" =")[0] for line in self.parameters)
        given = "\n".join(f"  {line}" for line in self.parameters)
        call = f"  ROOT whole = {self.result} fusion({names}), kind=kLoop, calls=fused\n"
        return f"{head}fused {{\n{body}\n}}\n\nENTRY e {{\n{given}\n{call}}}\n"

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of them."""
        return self.rnd.choice(choices)

    def chance(self, probability: float) -> bool:
        """Return True so often."""
        return self.rnd.random() < probability

    def sizes(self, least: int = 0, most: int = 3) -> tuple[int, ...]:
        """Return the sizes of `least` to `most` dimensions; a few are 0 or 1."""
        rank = self.rnd.randint(least, most)
        return tuple(self.pick((0, 1, 2, 2, 3, 3, 4, 5, 7)) for _ in range(rank))

    def braced(self, numbers: Sequence[int]) -> str:
        """Return a list as attributes hold it."""
        return "{" + ",".join(map(str, numbers)) + "}"

    def shape(self, dtype: str, dims: Sequence[int]) -> str:
        """Return a shape's text, with a layout now and then."""
        layout = ""
        if self._layouts and dims:
            layout = self.braced(self.rnd.sample(range(len(dims)), len(dims)))
        return f"{dtype}[{','.join(map(str, dims))}]{layout}"

    def given(self, dtype: str, dims: tuple[int, ...]) -> Operand:
        """Write a parameter."""
        number = len(self.parameters)
        self.parameters.append(f"p{number} = {self.shape(dtype, dims)} parameter({number})")
        return Operand(f"p{number}", dtype, dims)

    def array(self, dtype: str, least: int = 0) -> Operand:
        """Write a parameter of any sizes."""
        return self.given(dtype, self.sizes(least))

    def root(self, dtype: str, dims: tuple[int, ...], call: str) -> None:
        """Write the operation."""
        self.result = self.shape(dtype, dims)
        self.lines.append(f"ROOT r = {self.result} {call}")

    def several(self, results: Sequence[tuple[str, tuple[int, ...]]], call: str) -> None:
        """Write the operation, which returns a tuple."""
        self.result = f"({', '.join(self.shape(*result) for result in results)})"
        self.lines.append(f"ROOT r = {self.result} {call}")

    def region(self, dtype: str, opcode: str, ending: str = "") -> str:
        """Write a computation that is one binary instruction on scalars; return its name."""
        name = f"{opcode}_{dtype}{'_' + ending[-2:] if ending else ''}"
        result = "pred" if opcode == "compare" else dtype
        return self.computation(
            name,
            f"  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
            f"  ROOT c = {result}[] {opcode}(a, b){ending}\n",
        )

    def computation(self, name: str, body: str) -> str:
        """Write a computation; return its name."""
        self._regions[name] = f"{name} {{\n{body}}}\n\n"
        return name
