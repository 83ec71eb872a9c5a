"""Pointers of their own for parts of arrays: of a slice whose dimension of size 1 was dropped.

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

_SUM = re.compile(r"(\d+) \+ (\d+)")


@dataclass(slots=True)
class Parts:
    """The parts that an emitter has met, of the arrays named in `aligned`.

    heads: by the name of a part's pointer the line that declares it, before all others.
    """

    aligned: frozenset[str] = frozenset()
    heads: dict[str, str] = field(default_factory=dict)
    _constants: dict[Expr, int] = field(default_factory=dict)

    def note(self, name: Expr, expression: str) -> Expr:
        """Take what an integer is declared as; return its name."""
        if sum_ := _SUM.fullmatch(expression):
            self._constants[name] = int(sum_[1]) + int(sum_[2])
        return name

    def of(self, array: str, shape: Shape, index: Index) -> tuple[str, Index]:
        """Return where the part of an array begins that an index is in, and the index in it."""
        fixed = [self._constants.get(at, 0) for at in index]
        if array not in self.aligned or not any(fixed):
            return array, index
        found, stride = 0, 1
        for dim in shape.minor_to_major:
            found += fixed[dim] * stride
            stride *= shape.dims[dim]
        if found * shape.dtype.size % ACCESS_BYTES:
            return array, index
        name, kind = f"{array}_{found}", storage_type(shape.dtype)
        self.heads[name] = (
            f"  const {kind}* const {name} = (const {kind}*)__builtin_assume_aligned("
            f"hlo::moved<{found}>({array}), {ACCESS_BYTES});"
        )
        return name, tuple("0" if at else i for at, i in zip(fixed, index, strict=True))
