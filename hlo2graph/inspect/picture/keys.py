"""What is equal for things that do the same work: computations, thunks, sequences of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Collective, Fill, Kernel, Library, Sequence, Slice, Thunk
from hlo2graph.program.uses import nested, reads, writes

_NAMING = frozenset(
    {"metadata", "channel_id", "backend_config", "frontend_attributes", "sharding", "origin"}
)
"""Attributes that say which instruction it is, or where it came from, and not what it computes."""


class Keys:
    """Gives equal numbers to equal work; names, and where bytes lie, play no part."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[str, int] = {}
        for name in computations:  # callees come first, so that no walk is deep
            self.computation(name)

    def thunk(self, thunk: Thunk[Slice]) -> int:
        """Return the number of a thunk, of what it holds too."""
        sizes = tuple(s.size for s in reads(thunk)), tuple(s.size for s in writes(thunk))
        inside = tuple((label, self._sequence(inner)) for label, inner in nested(thunk))
        does: Hashable = ""
        if isinstance(thunk, Kernel | Library | Collective):
            does = self.computation(thunk.computation)
        elif isinstance(thunk, Fill):
            does = thunk.pattern
        return self._number((kind_of(thunk), does, sizes, inside))

    def computation(self, name: str) -> int:
        """Return the number of a computation."""
        if name not in self._known:
            computation = self._computations[name]
            place = {instr.name: at for at, instr in enumerate(computation.instructions)}
            rows = tuple(
                (self.instruction(instr), tuple(place[o] for o in instr.operands))
                for instr in computation.instructions
            )
            self._known[name] = self._number((rows, place[computation.root]))
        return self._known[name]

    def instruction(self, instr: Instruction) -> int:
        """Return the number of an instruction, its operands left out."""
        called = tuple(map(self.computation, instr.called()))
        names = set(instr.called())
        attrs = tuple(
            (name, str(value))
            for name, value in instr.attrs.items()
            if name not in _NAMING and not _names(value, names)
        )
        held = instr.payload
        shape = instr.shape
        text = shape.without_layout_text() if isinstance(shape, Shape) else str(shape)
        return self._number((instr.opcode, text, attrs, called, held))

    def _sequence(self, sequence: Sequence[Slice]) -> int:
        ordered = tuple((e.src, e.dst, e.hazard) for e in sequence.edges)
        return self._number((tuple(map(self.thunk, sequence.thunks)), ordered))

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _names(value: object, called: set[str]) -> bool:
    """Tell whether an attribute holds the names of called computations."""
    return (
        value in called
        if isinstance(value, str)
        else isinstance(value, tuple)
        and any(isinstance(part, str) and part in called for part in value)
    )
