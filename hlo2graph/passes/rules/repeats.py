"""Finding instructions that give what another one gives already."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeAlias

from hlo2graph.hlo import AnyShape, Computation, Instruction, Literal, Shape
from hlo2graph.hlo.module import CALLING_ATTRS
from hlo2graph.passes.draft import Draft

MOST_BYTES = 1 << 16  # of a constant that is compared with others

_Key: TypeAlias = tuple[Hashable, ...]
_SILENT = frozenset({"metadata", "origin", "statistics"})
_CALLING = frozenset(CALLING_ATTRS)
_APART = frozenset(
    {
        *("add-dependency", "after-all", "call", "conditional", "custom-call", "domain"),
        *("fusion", "opt-barrier", "parameter", "rng", "while"),
    }
)
_STEPS = ("-start", "-update", "-done")


class Regions:
    """Which called computations are equal up to names."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations
        self._keys: dict[str, _Key] = {}

    def key(self, name: str) -> _Key:
        """Return what equal computations have in common."""
        if name not in self._keys:
            computation = self._computations[name]
            numbers = {i.name: k for k, i in enumerate(computation.instructions)}
            self._keys[name] = (
                numbers[computation.root],
                *(
                    key_of(i, tuple(numbers[o] for o in i.operands), self)
                    for i in computation.instructions
                ),
            )
        return self._keys[name]


class Repeats:
    """The instructions of one draft by what they compute."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._names: dict[_Key, str] = {}
        self._keys: dict[str, _Key] = {}

    def earlier(self, draft: Draft, instr: Instruction) -> str | None:
        """Return another instruction that gives the same value, if one was met before."""
        if instr.opcode in _APART or instr.opcode.endswith(_STEPS):
            return None
        held = instr.payload
        if isinstance(held, Literal) and (held.array is None or held.array.nbytes > MOST_BYTES):
            return None
        key = key_of(instr, instr.operands, self._regions)
        known = self._names.get(key, instr.name)
        if known != instr.name and known in draft and self._keys.get(known) == key:
            return known
        self._names[key] = instr.name
        self._keys[instr.name] = key
        return None


def key_of(instr: Instruction, operands: tuple[Hashable, ...], regions: Regions) -> _Key:
    """Return what two instructions that give the same value have in common."""
    attrs = tuple(
        (name, _calls_key(held, regions) if name in _CALLING else held)
        for name, held in instr.attrs.items()
        if name not in _SILENT
    )
    return (instr.opcode, _shape_key(instr.shape), operands, attrs, instr.payload)


def _calls_key(held: object, regions: Regions) -> Hashable:
    if isinstance(held, str):
        return regions.key(held)
    assert isinstance(held, tuple)
    return tuple(regions.key(str(name)) for name in held)


def _shape_key(shape: AnyShape) -> Hashable:
    if isinstance(shape, Shape):
        return (shape.dtype.name, shape.dims, shape.minor_to_major, shape.dynamic)
    return tuple(map(_shape_key, shape.parts))
