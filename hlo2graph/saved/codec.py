"""Plans and modules as JSON and the bytes of their arrays, without a parser and without pickle.

Strings, numbers, booleans and null stand for themselves, a list for a tuple; everything else is an
object of one member, whose name says what it is:

    {"Copy": ["copy.1", {"Slice": [0, 0, 64]}, ...]}   a dataclass, its fields in order
    {"=": 7}            the seventh of `shared`, where equal shapes stand once
    {"map": [[k, v]]}, {"set": [...]}, {"raw": "text"}, {"bytes": "00ff"}, {"dtype": "f32"}
    {"enum": ["Hazard", "raw"]}
    {"Literal": [shape, null, at]}       a constant elided there; "00ff": its bytes, where few;
                                         [offset]: where they are in the data

`fields` says what the fields of each class were called when it was written: one that has come
since takes its default, one that is gone makes the file unreadable, and none is mistaken for
another. Spans are left out where there is no text that they could point into; else they are
{"at": [start, end]}.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from hlo2graph import hlo
from hlo2graph.errors import Source, Span
from hlo2graph.program import plan as plans
from hlo2graph.program import thunks
from hlo2graph.saved.typed import fits_of

Json: TypeAlias = Any

INLINE = 64  # bytes of an array that stand in the JSON
ALIGNED = 64
PLAIN = frozenset({type(None), bool, int, float, str})  # what stands for itself
_CLASSES: tuple[type, ...] = (
    *(hlo.Module, hlo.Computation, hlo.Instruction, hlo.Shape, hlo.TupleShape, hlo.Layout),
    *(hlo.Window, hlo.WindowDim, hlo.DimLabels, hlo.PaddingDim, hlo.SliceDim),
    *(plans.Plan, plans.Allocation, plans.Bound, plans.ArenaSize),
    *(thunks.Sequence, thunks.Slice, thunks.Edge, thunks.Kernel, thunks.Library, thunks.Copy),
    *(thunks.Fill, thunks.Collective, thunks.While, thunks.Conditional),
)
_ENUMS: Mapping[str, type[StrEnum]] = {
    "AllocationKind": plans.AllocationKind,
    "Hazard": thunks.Hazard,
}


def _kept(of: type, *, spans: bool) -> tuple[Field[Any], ...]:
    """Return the fields that a file has of a class."""
    return tuple(f for f in fields(of) if f.init and (spans or f.name != "span"))


class Encoder:
    """Turns values into JSON. `classes` may occur beside those of plans and modules.

    `text` is what spans point into, where whoever reads it will have it too.
    """

    def __init__(self, classes: tuple[type, ...] = (), text: str | None = None) -> None:
        self._text, spans = text, text is not None
        self._names = {of: [f.name for f in _kept(of, spans=spans)] for of in (*_CLASSES, *classes)}
        self._places: dict[object, int] = {}
        self._data: dict[bytes, int] = {}
        self._end = 0
        self.shared: list[Json] = []
        self.fields: dict[str, list[str]] = {}
        self._how: dict[type, Callable[[Any], Json]] = {
            **dict.fromkeys(PLAIN, lambda value: value),
            tuple: lambda value: [self(v) for v in value],
            **dict.fromkeys((dict, MappingProxyType), self._map),
            frozenset: lambda value: {"set": sorted(value)},
            bytes: lambda value: {"bytes": value.hex()},
            hlo.Raw: lambda value: {"raw": str(value)},
            Span: self._span,
            hlo.DType: lambda value: {"dtype": value.name},
            hlo.Literal: self._literal,
            **dict.fromkeys((hlo.Shape, hlo.TupleShape), lambda value: {"=": self._place(value)}),
        }

    @property
    def data(self) -> list[bytes]:
        """The bytes of arrays, in pieces."""
        return [part for held in self._data for part in (held, bytes(-len(held) % ALIGNED))]

    def __call__(self, value: object) -> Json:
        """Return the JSON for a value."""
        how = self._how.get(type(value))
        if how is not None:
            return how(value)
        if isinstance(value, StrEnum):
            return {"enum": [type(value).__name__, str(value)]}
        return str(value) if isinstance(value, str) else self._object(value)

    def _map(self, value: Mapping[object, object]) -> Json:
        return {"map": [[self(k), self(v)] for k, v in value.items()]}

    def _object(self, value: object) -> Json:
        of = type(value)
        names = self.fields.setdefault(of.__name__, self._names[of])
        return {of.__name__: [self(getattr(value, name)) for name in names]}

    def _span(self, span: Span) -> Json:
        return {"at": [span.start, span.end]} if span.source.text == self._text else None

    def _place(self, shape: hlo.AnyShape) -> int:
        if shape not in self._places:
            held = self._object(shape)  # first, because it may hold shapes too
            self._places[shape] = len(self.shared)
            self.shared.append(held)
        return self._places[shape]

    def _literal(self, literal: hlo.Literal) -> Json:
        held = [self(literal.shape), self._array(literal.array)]
        return {"Literal": [*held, literal.at] if literal.is_elided else held}

    def _array(self, array: np.ndarray | None) -> Json:
        if array is None:
            return None
        held = np.ascontiguousarray(array).tobytes()
        if len(held) <= INLINE:
            return held.hex()
        if held not in self._data:
            self._data[held] = self._end
            self._end += len(held) + -len(held) % ALIGNED
        return [self._data[held]]


@dataclass(slots=True)
class Decoder:
    """Turns the JSON of an Encoder into the values it was given, with spans of `source`.

    Fields hold what their annotations say. Raises KeyError, TypeError, ValueError or IndexError
    where the JSON is nothing that an Encoder writes.
    """

    fields: Mapping[str, list[str]]
    data: bytes | memoryview
    shared: list[Any] = field(default_factory=list)
    classes: tuple[type, ...] = ()
    source: Source | None = None
    _read: dict[str, Callable[[Json], object]] = field(init=False)
    _found: list[object] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        known = {of.__name__: of for of in (*_CLASSES, *self.classes)}
        self._read = {
            "map": lambda pairs: {self(k): self(v) for k, v in pairs} if pairs else {},
            "set": frozenset,
            "raw": hlo.Raw,
            "at": self._span,
            "bytes": bytes.fromhex,
            "dtype": hlo.DTYPES.__getitem__,
            "enum": lambda held: _ENUMS[held[0]](held[1]),
            "Literal": self._literal,
            "=": lambda at: self._found[at],
        }
        self._read |= {name: self._maker(known[name], held) for name, held in self.fields.items()}
        for held in self.shared:
            self._found.append(self(held))

    def __call__(self, held: Json) -> Any:  # noqa: ANN401, it is whatever was encoded
        """Return the value."""
        kind = type(held)
        if kind is list:
            return tuple([v if type(v) in PLAIN else self(v) for v in held])
        if kind is dict:
            ((name, value),) = held.items()
            return self._read[name](value)
        return held

    def _maker(self, of: type, written: list[str]) -> Callable[[Json], object]:
        """Return what makes an object of the fields that were `written`."""
        now = {f.name: f for f in _kept(of, spans=self.source is not None)}
        if unknown := [name for name in written if name not in now]:
            raise ValueError(f"{of.__name__} has no {', '.join(unknown)} here")
        for name in set(now) - set(written):
            if now[name].default is MISSING and now[name].default_factory is MISSING:
                raise ValueError(f"{of.__name__} has a {name} here")

        fits = fits_of(of)
        checks = [(name, fits[name]) for name in written]

        def make(values: list[Json]) -> object:
            given = {}
            for (name, may_hold), value in zip(checks, map(self, values), strict=True):
                if not may_hold(value):
                    raise TypeError(f"the {name} of a {of.__name__} is a {type(value).__name__}")
                given[name] = value
            return of(**given)

        return make

    def _span(self, held: Json) -> Span:
        assert self.source is not None  # without one, nothing has a field for it
        return Span(self.source, *held)

    def _literal(self, held: Json) -> hlo.Literal:
        shape = self(held[0])
        where = held[1]
        if where is None:
            at = held[2] if len(held) > 2 else 0  # files of 0.2 do not say
            if type(at) is not int or at < 0:
                raise ValueError(f"a constant is elided at {at}")
            return hlo.Literal(shape, None, at=at)
        dtype = shape.dtype.numpy
        count, inline = math.prod(shape.dims), isinstance(where, str)
        buffer = bytes.fromhex(where) if inline else self.data
        if min(shape.dims, default=0) < 0:
            raise ValueError(f"a constant has the shape {shape}")
        if not count:
            return hlo.Literal(shape, np.empty(shape.dims, dtype))
        array = np.frombuffer(buffer, dtype, count, 0 if inline else where[0])
        return hlo.Literal(shape, array.reshape(shape.dims))
