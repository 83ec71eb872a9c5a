"""Take top-k of long rows apart: the best of each part of a row, then the best of those, and so on.

In and out: a Module of the same meaning. Parts stand in their order, and each gives equal elements
in theirs, so that equal elements keep their order. What fills no part is a candidate as it is.
Where k is more than a block keeps at hand, the row is sorted instead, which many blocks do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from hlo2graph.hlo import DTYPES, Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.custom_target import target_of
from hlo2graph.ops.top_places import top_places_attrs
from hlo2graph.passes.draft import Draft, is_settled
from hlo2graph.passes.large.arrays import Arrays, resized
from hlo2graph.passes.names import Names
from hlo2graph.passes.redraft import redraft

LONG = 8192  # elements of a row that a block looks through in about a launch's time
PARTS = 1024  # of all rows together, so that a device's multiprocessors have several
MOST_KEPT = 1024  # of k, that a block keeps at hand
FEWEST = 2048  # elements of a part
GAIN = 4  # times fewer candidates than elements, at least
_TARGETS = frozenset({"TopK", "__gpu$TopK"})


def split_tops(module: Module) -> Module:
    """Return `module` with top-k of long rows taken apart."""
    regions = _Regions(module.computations)

    def rewrite(draft: Draft) -> Computation:
        for instr in [i for i in draft.instructions.values() if _is_top(i)]:
            source = draft.shape(instr.operands[0])
            if draft.is_pure(instr) and is_settled(source):
                _split(draft, instr, regions)
        return draft.done()

    made = redraft(redraft(module, "topk", rewrite), "custom-call", rewrite)
    if not regions.made:
        return made
    return replace(made, computations=regions.made | dict(made.computations))


def _is_top(instr: Instruction) -> bool:
    return instr.opcode == "topk" or (
        instr.opcode == "custom-call" and target_of(instr) in _TARGETS
    )


def _split(draft: Draft, instr: Instruction, regions: _Regions) -> None:
    to, source = Arrays(draft, instr), draft.shape(instr.operands[0])
    length, k = source.dims[-1] if source.dims else 0, next(instr.shape.leaves()).dims[-1]
    if length <= LONG or not source.elements or not k:
        return
    largest = instr.attrs.get("largest", True) is True
    if k > MOST_KEPT:
        parts = _by_sort(to, source, k, regions.named(source, largest=largest))
    elif _parts_of(source, k) < 2:
        return
    else:
        parts = _by_parts(to, to.like.operands[0], None, k, largest=largest)
    to.end_with(parts)


def _by_sort(to: Arrays, source: Shape, k: int, comparator: str) -> tuple[str, str]:
    """Return the first k of all elements, sorted, and where they stood."""
    last = source.rank - 1
    places = replace(source, dtype=S32)
    shape = TupleShape((source, places))
    found = to.draft.add(
        to.like,
        "sort",
        shape,
        (to.like.operands[0], to.iota(places, last)),
        {"dimensions": (last,), "is_stable": True, "to_apply": comparator},
    )
    best, at = (to.cut(array, last, 0, k) for array in to.draft.leaves(to.like, found))
    return best, at


def _parts_of(source: Shape, k: int) -> int:
    """Return how many parts of a row have blocks of their own."""
    length = source.dims[-1]
    most = PARTS // prod(source.dims[:-1]) if length > LONG else 1
    return min(most, length // max(FEWEST, GAIN * k))


def _by_parts(
    to: Arrays, name: str, stood: str | None, k: int, *, largest: bool
) -> tuple[str, str]:
    """Return the best of the best of each part, and where they stood, as `stood` says it of all."""
    source = to.shape(name)
    count, last = _parts_of(source, k), source.rank - 1
    if count < 2:
        return _top(to, name, stood, k, largest=largest)
    size = source.dims[-1] // count
    end = count * size
    arrays = [name] if stood is None else [name, stood]
    first, *more = (to.parted(to.cut(x, last, 0, end), last, count) for x in arrays)
    values, places = _top(to, first, more[0] if more else None, k, largest=largest)
    if stood is None:
        part = to.iota(to.shape(places), last)
        places = to.apply("add", places, to.apply("multiply", part, to.like_filled(part, size)))
    values, places = (to.merged(x, last) for x in (values, places))
    if end < source.dims[-1]:
        left, *step = (to.cut(x, last, end, source.dims[-1]) for x in arrays)
        if stood is None:
            number = to.iota(replace(to.shape(left), dtype=S32), last)
            step = [to.apply("add", number, to.like_filled(number, end))]
        values, places = to.join((values, left), last), to.join((places, *step), last)
    return _by_parts(to, values, places, k, largest=largest)


def _top(to: Arrays, name: str, stood: str | None, k: int, *, largest: bool) -> tuple[str, str]:
    shape = resized(to.shape(name), to.shape(name).rank - 1, k)
    whole = TupleShape((shape, replace(shape, dtype=S32)))
    if stood is None:
        attrs = {"k": k, "largest": largest}
        found = to.draft.add(to.like, "topk", whole, (name,), attrs)
    else:
        how = top_places_attrs(k, largest=largest)
        found = to.draft.add(to.like, "custom-call", whole, (name, stood), how)
    values, places = to.draft.leaves(to.like, found)
    return values, places


class _Regions:
    """Comparators of a value and a place by the value, the best first: one a type."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._names = Names(computations)
        self._found: dict[tuple[str, bool], str] = {}
        self.made: dict[str, Computation] = {}

    def named(self, source: Shape, *, largest: bool) -> str:
        """Return the name of the comparator for values like those of `source`."""
        key = source.dtype.name, largest
        if key not in self._found:
            name = self._names.fresh(f"{'largest' if largest else 'smallest'}_{source.dtype}")
            self._found[key] = name
            self.made[name] = _comparator(name, Shape(source.dtype), largest=largest)
        return self._found[key]


def _comparator(name: str, value: Shape, *, largest: bool) -> Computation:
    types = (value, value, Shape(S32), Shape(S32))
    lines = [
        Instruction(n, "parameter", t, payload=k)
        for k, (n, t) in enumerate(zip("abij", types, strict=True))
    ]
    order = {"type": "TOTALORDER"} if value.dtype.is_float else {}
    attrs = {"direction": "GT" if largest else "LT", **order}
    lines.append(Instruction("r", "compare", Shape(DTYPES["pred"]), ("a", "b"), attrs))
    return Computation(name, tuple(lines), "r")
