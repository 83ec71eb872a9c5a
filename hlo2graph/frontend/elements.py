"""Reads the elements of a constant one by one, and says which is at fault."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isinf

import ml_dtypes
import numpy as np

from hlo2graph.frontend.cursor import int64
from hlo2graph.frontend.scan import Fault, shown
from hlo2graph.hlo import DTYPES, DType, Kind, Shape
from hlo2graph.hlo.floats import MANTISSA_BITS
from hlo2graph.ops.spec import Array

_NUMBER = r"-?+(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+"
_TOKEN = re.compile(
    r"\s*+(?:(?P<open>\{)|(?P<close>\})|(?P<comma>,)|(?P<dots>\.\.\.)"
    r"|(?P<element>\((?>[^()]++|\([^()]*+\))*+\)|-?nan\([^()]*+\)"
    rf"|{_NUMBER}(?=[\s,{{}}()\-])|[^\s,{{}}()]++|[()]))",
    re.ASCII,
)
_NAN = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]{1,64})\))?")
_DECIMAL = re.compile(r"-?\d++(?:\.\d*+)?+(?:[eE][+-]?\d++)?+|-\.\d++(?:[eE][+-]?\d++)?+", re.ASCII)
_INTEGER = re.compile(r"-?\d++", re.ASCII)
_QUIET = 1 << 51  # what a NaN of f64 carries that says nothing
_LONGEST_PAYLOAD = (1 << 52) - 1


@dataclass(frozen=True, slots=True)
class _Nan:
    """A NaN of an IEEE-like type, as its bits."""

    bits: int


def walk(text: str, start: int, end: int, shape: Shape) -> Array | None:
    """Return the elements of `text[start:end]` in order, as one dimension; None if some are elided.

    Commas may stand anywhere or be left out, as in XLA: the braces say what is where.

    Raises:
        Fault: the braces are not those of the shape, or an element is not of its type.
    """
    nest = _Nest(shape.dims)
    values: list[object] = []
    at = start
    while found := _TOKEN.match(text, at, end):
        mark = found.lastgroup or ""
        begin, at = found.span(mark)
        if mark == "open":
            nest.open(begin)
        elif mark == "close":
            nest.close(begin)
        elif mark == "dots":
            nest.elide(begin)
        elif mark == "element":
            nest.element(begin, at)
            values.append(element(found[mark], begin, shape.dtype))
    if not values and not shape.dims:
        raise Fault(f"expected a value of type {shape.dtype}", start, start + 1)
    return None if nest.is_elided else _packed(values, shape.dtype)


class _Nest:
    """Checks that items and braces come as the dimensions want them."""

    def __init__(self, dims: tuple[int, ...]) -> None:
        self._dims = dims
        self._counts: list[int] = []  # items so far, for each brace that is open
        self._has_scalar = False
        self._shallow: Fault | None = None  # an element in too few braces
        self.is_elided = False

    def open(self, at: int) -> None:
        if len(self._counts) == len(self._dims):
            raise Fault(f"unexpected '{{': the shape has {_dimensions(self._dims)}", at, at + 1)
        self._item(at, at + 1)
        self._counts.append(0)

    def close(self, at: int) -> None:
        if not self._counts:
            raise Fault("unexpected '}'", at, at + 1)
        if self._shallow and not self.is_elided:
            raise self._shallow
        depth = len(self._counts) - 1
        found, size = self._counts.pop(), self._dims[depth]
        if found != size:
            raise Fault(f"expected {size} items in dimension {depth}, found {found}", at, at + 1)

    def elide(self, at: int) -> None:
        if len(self._counts) != 1:
            raise Fault("'...' stands for values in the outermost braces alone", at, at + 3)
        self._counts[0] = self._dims[0]
        self.is_elided = True

    def element(self, at: int, end: int) -> None:
        if not self._dims and self._has_scalar:
            raise Fault("unexpected text behind the value", at, end)
        self._has_scalar = True
        if len(self._counts) < len(self._dims):
            fault = Fault(f"expected '{{': the shape has {_dimensions(self._dims)}", at, end)
            self._shallow = self._shallow or fault
        else:
            self._item(at, end)

    def _item(self, at: int, end: int) -> None:
        if not self._counts:
            return
        depth = len(self._counts) - 1
        self._counts[-1] += 1
        if self._counts[-1] > self._dims[depth]:
            raise Fault(
                f"expected {self._dims[depth]} items in dimension {depth}, found more", at, end
            )


def _dimensions(dims: tuple[int, ...]) -> str:
    return f"{len(dims)} dimension{'s' * (len(dims) != 1)}"


def element(text: str, at: int, dtype: DType) -> object:
    """Return one element: a bool, int, float, pair of floats or, for a NaN, its bits."""
    end = at + len(text)
    if dtype.kind is Kind.PRED:
        if text in ("true", "false"):
            return text == "true"
        if not _INTEGER.fullmatch(text):
            raise Fault(f"expected true or false, found {shown(text)}", at, end)
        return bool(int64(text, at))
    if dtype.is_integer:
        return _integer(text, at, dtype)
    if dtype.is_complex:
        parts = text[1:-1].split(",")
        if text[0] != "(" or text[-1] != ")" or len(parts) != 2:
            raise Fault(f"expected a complex number such as (1, -2), found {shown(text)}", at, end)
        half = DTYPES["f32" if dtype.name == "c64" else "f64"]
        return tuple(_float(part.strip(), at, end, half) for part in parts)
    return _float(text, at, end, dtype)


def _integer(text: str, at: int, dtype: DType) -> int:
    end = at + len(text)
    if not _INTEGER.fullmatch(text):
        raise Fault(f"expected an integer of type {dtype}, found {shown(text)}", at, end)
    value = int64(text, at)
    low, high = dtype.limits
    if dtype.name == "u64":
        return value & high
    if not low <= value <= high:
        raise Fault(f"{shown(text)} is out of the range of {dtype}, {low} to {high}", at, end)
    return value


def _float(text: str, at: int, end: int, dtype: DType) -> float | _Nan:
    if nan := _NAN.fullmatch(text):
        return _nan(nan, at, end, dtype)
    if text in ("inf", "-inf"):
        return float(text)
    if not _DECIMAL.fullmatch(text):
        hint = "; hexadecimal floats are not HLO" if "0x" in text.lower() else ""
        raise Fault(f"expected a number of type {dtype}, found {shown(text)}{hint}", at, end)
    value = float(int64(text, at)) if _INTEGER.fullmatch(text) else float(text)
    with np.errstate(over="ignore"):
        narrow = np.float64(value).astype(dtype.numpy)
    if isinf(value) or not np.isfinite(narrow):
        high = float(ml_dtypes.finfo(dtype.numpy).max)  # type: ignore[no-untyped-call]
        raise Fault(f"{shown(text)} is out of the range of {dtype}, {-high:g} to {high:g}", at, end)
    return value


def _nan(found: re.Match[str], at: int, end: int, dtype: DType) -> float | _Nan:
    mantissa = MANTISSA_BITS.get(dtype.name)
    written = int(found[2], 16) if found[2] else _QUIET
    if not 0 < written <= _LONGEST_PAYLOAD:
        raise Fault(f"the payload of a NaN is from 0x1 to {_LONGEST_PAYLOAD:#x}", at, end)
    if mantissa is None:
        if written != _QUIET:
            raise Fault(f"a NaN of {dtype} has no payload", at, end)
        return float("-nan" if found[1] else "nan")
    payload = written if written != _QUIET else 1 << (mantissa - 1)
    if payload >= 1 << mantissa:
        most = (1 << mantissa) - 1
        raise Fault(f"the payload of a {dtype} NaN is from 0x1 to {most:#x}", at, end)
    exponent = ((1 << (dtype.bits - 1 - mantissa)) - 1) << mantissa
    sign = 1 << (dtype.bits - 1) if found[1] else 0
    return _Nan(sign | exponent | payload)


def _packed(values: list[object], dtype: DType) -> Array:
    """Return the elements as an array of `dtype`, NaNs bit for bit."""
    if dtype.is_complex:
        half = DTYPES["f32" if dtype.name == "c64" else "f64"]
        flat = [part for pair in values if isinstance(pair, tuple) for part in pair]
        return _packed(flat, half).view(dtype.numpy)
    if dtype.is_integer:
        wide: Array = np.array(values, np.int64 if dtype.kind is Kind.SIGNED else np.uint64)
        return wide.astype(dtype.numpy)
    plain = [0.0 if isinstance(value, _Nan) else value for value in values]
    array: Array = np.array(plain, np.bool_ if dtype.kind is Kind.PRED else np.float64)
    with np.errstate(over="ignore"):  # f4e2m1fn has no infinity: what is too large is its largest
        array = array.astype(dtype.numpy)
    bits = array.view(f"u{dtype.size}")
    for index, value in enumerate(values):
        if isinstance(value, _Nan):
            bits[index] = value.bits
    return array
