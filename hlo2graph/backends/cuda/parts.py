"""Pointers of their own for parts of arrays, such as slices are.

Where such a part begins is a constant. In one sum with all else of an index it would hide from the
compiler that what differs by 1 lies side by side, and each element would be read by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.source import ACCESS_BYTES
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr, Index

NEIGHBOURS = 32  # elements: those that may be read together are no further apart, and in one part

_SUM = re.compile(r"(\w+) \+ (\d+)")


@dataclass(slots=True)
class Parts:
    """The parts that an emitter has met, of the arrays named in `aligned`.

    anywhere: whether those count that begin elsewhere than at a dropped dimension. In products of
    many parts, such as gates, their pointers take more registers than they save.
    heads: by the name of a part's pointer the line that declares it, before all others.
    """

    aligned: frozenset[str] = frozenset()
    anywhere: bool = False
    heads: dict[str, str] = field(default_factory=dict)
    _sums: dict[Expr, tuple[Expr, int]] = field(default_factory=dict)

    def note(self, name: Expr, expression: str) -> Expr:
        """Take what an integer is declared as; return its name."""
        if sum_ := _SUM.fullmatch(expression):
            rest, constant = sum_[1], int(sum_[2])
            self._sums[name] = ("0", int(rest) + constant) if rest.isdigit() else (rest, constant)
        return name

    def of(self, array: str, shape: Shape, index: Index) -> tuple[str, Index]:
        """Return where the part of an array begins that an index is in, and the index in it."""
        if array not in self.aligned:
            return array, index
        sums = [self._sums.get(at, (at, 0)) for at in index]
        for k, (rest, constant) in enumerate(sums):
            if rest != "0" and (constant < NEIGHBOURS or not self.anywhere):
                sums[k] = index[k], 0
        found, stride = 0, 1
        for dim in shape.minor_to_major:
            found += sums[dim][1] * stride
            stride *= shape.dims[dim]
        if not found or found * shape.dtype.size % ACCESS_BYTES:
            return array, index
        name, kind = f"{array}_{found}", storage_type(shape.dtype)
        self.heads[name] = (
            f"  const {kind}* const {name} = (const {kind}*)__builtin_assume_aligned("
            f"hlo::moved<{found}>({array}), {ACCESS_BYTES});"
        )
        return name, tuple(rest for rest, _ in sums)
