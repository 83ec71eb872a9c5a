"""How lanes widen and round narrow floats: two by two, by the device's instructions.

These are exact but for rare values: a NaN loses its payload, and what is too large for 8 bits is
not what HLO says. So one test of all lanes sends rare ones another way, by the exact functions.
What stands between two loads would part them: all loads that can go first do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from hlo2graph.backends.cuda.forms.line_order import parted

WIDENED = frozenset({"f16", "f8e4m3fn", "f8e5m2"})  # bf16 is widened by a shift
PAIRED = frozenset({"bf16", "f16", "f8e4m3fn", "f8e5m2"})
IN_FOURS = frozenset({"f8e4m3fn", "f8e5m2"})

_READ = re.compile(
    r"(?P<margin> *)const [\w:]+ (?P<name>\w+) = (?:hlo::load\()?"
    r"(?P<array>p\d+)\[(?P<place>[^\]]*)\]\)?;$"
)
_INTEGER = re.compile(r" *const (?:int|long long) (?P<name>\w+) = .*;$")
_LOADED = re.compile(
    r"(?P<margin> *)const float (?P<name>\w+) = hlo::load\((?P<raw>\w+_raw\w*)\);$"
)
_ROUNDED = re.compile(
    r"(?P<margin> *)const auto (?P<name>\w+_raw\w*) = "
    r"hlo::Store<hlo::(?P<type>\w+)>::of\((?P<value>\w+)\);$"
)
_STORED = re.compile(r"(?P<margin> *)(?P<array>r\d+)\[(?P<place>[^\]]*)\] = (?P<name>\w+_raw\w*);$")


def two_by_two(lines: Sequence[str], types: Mapping[str, str]) -> list[str]:
    """Return the lines of several lanes; `types` are those of aligned arrays: p0, r0, ..."""
    return _Pairs(lines, types).written()


class _Pairs:
    """Writes lines anew, by runs of lines that do the same for all lanes."""

    def __init__(self, lines: Sequence[str], types: Mapping[str, str]) -> None:
        self._types = types
        self._raw = {m["name"]: types.get(m["array"], "") for m in map(_READ.match, lines) if m}
        kinds = {self._kind(line) for line in lines}
        widens = any(what == "load" and dtype in WIDENED for what, dtype, _ in kinds)
        self._lines = _reads_first(lines) if widens else lines
        self._words: set[str] = set()  # elements that were read in words

    def written(self) -> list[str]:
        found: list[str] = []
        for (what, dtype, _), several in groupby(self._lines, self._kind):
            run = list(several)
            if what == "read" and dtype in IN_FOURS and _is_whole(run, _READ):
                found += self._read(run, dtype)
            elif what == "load" and dtype in WIDENED and len(run) % 2 == 0:
                found += self._widened(run, dtype)
            elif what == "round" and dtype in PAIRED and len(run) % 2 == 0:
                found += self._rounded(run, dtype)
            elif what == "store" and dtype in IN_FOURS and _is_whole(run, _STORED):
                found += self._stored(run)
            else:
                found += run
        return found

    def _kind(self, line: str) -> tuple[str, str, str]:
        """Return what a line does, the element type, and what lines of one run have in common."""
        if loaded := _LOADED.match(line):
            return "load", self._raw.get(loaded["raw"], ""), ""
        if rounded := _ROUNDED.match(line):
            return "round", rounded["type"], ""
        for what, pattern in (("read", _READ), ("store", _STORED)):
            if (found := pattern.match(line)) and "_raw" in found["name"]:
                return what, self._types.get(found["array"], ""), _stem(found["name"])
        return "", "", ""

    def _read(self, lines: Sequence[str], dtype: str) -> Iterator[str]:
        """Read words of four elements."""
        found = [m for m in map(_READ.match, lines) if m]
        margin, array, place = found[0].group("margin", "array", "place")
        for k, element in enumerate(found):
            word = f"{found[k // 4 * 4]['name']}_word"
            if k % 4 == 0:
                yield (
                    f"{margin}const hlo::u32 {word} = "
                    f"((const hlo::u32*)({array} + {place}))[{k // 4}];"
                )
            taken = f"hlo::element_of<hlo::{dtype}>({word}, {k % 4})"
            yield f"{margin}const auto {element['name']} = {taken};"
            self._words.add(element["name"])

    def _widened(self, lines: Sequence[str], dtype: str) -> Iterator[str]:
        found = [m for m in map(_LOADED.match, lines) if m]
        margin = found[0]["margin"]
        for k, (low, high) in enumerate(zip(found[::2], found[1::2], strict=True)):
            two = f"{low['name']}_two"
            value = f"hlo::two({low['raw']}, {high['raw']})"
            if low["raw"] in self._words:
                word = found[k // 2 * 4]["raw"]
                value = f"hlo::two_of<hlo::{dtype}>({word}_word, {k % 2})"
            yield f"{margin}const hlo::Two {two} = {value};"
            yield f"{margin}float {low['name']} = {two}.low, {high['name']} = {two}.high;"
        yield f"{margin}if (hlo::any_nan({', '.join(m['name'] for m in found)})) {{"
        yield from (f"{margin}  {m['name']} = hlo::load({m['raw']});" for m in found)
        yield f"{margin}}}"

    def _rounded(self, lines: Sequence[str], dtype: str) -> Iterator[str]:
        found = [m for m in map(_ROUNDED.match, lines) if m]
        margin, each = found[0]["margin"], 2
        pair, exact, taken = "pair", "pair_exact", "half"
        if dtype in IN_FOURS and len(found) % 4 == 0:
            each, pair, exact, taken = 4, "four", "four_exact", "element_of"
        groups = [found[k : k + each] for k in range(0, len(found), each)]

        def rounded(function: str, group: Sequence[re.Match[str]]) -> str:
            values = ", ".join(m["value"] for m in group)
            return f"{group[0]['name']}_word = hlo::{function}<hlo::{dtype}>({values});"

        yield from (f"{margin}hlo::u32 {rounded(pair, group)}" for group in groups)
        values = ", ".join(m["value"] for m in found)
        yield f"{margin}if (!hlo::pairs_exactly<hlo::{dtype}>({values})) {{"
        yield from (f"{margin}  {rounded(exact, group)}" for group in groups)
        yield f"{margin}}}"
        for group in groups:
            for k, element in enumerate(group):
                half = f"hlo::{taken}<hlo::{dtype}>({group[0]['name']}_word, {k})"
                yield f"{margin}const auto {element['name']} = {half};"

    def _stored(self, lines: Sequence[str]) -> Iterator[str]:
        found = [m for m in map(_STORED.match, lines) if m]
        margin, array, place = found[0].group("margin", "array", "place")
        for k, element in enumerate(found[::4]):
            yield f"{margin}((hlo::u32*)({array} + {place}))[{k}] = {element['name']}_word;"


def _reads_first(lines: Sequence[str]) -> list[str]:
    names = {m["name"] for m in map(_READ.match, lines) if m}
    names |= {m["name"] for m in map(_INTEGER.match, lines) if m}
    early, late = parted(lines, names)
    return early + late


def _stem(name: str) -> str:
    return name.partition("_raw")[0]


def _is_whole(lines: Sequence[str], pattern: re.Pattern[str]) -> bool:
    """Tell whether lanes access words from the thread's first element on."""
    places = [m["place"] for m in map(pattern.match, lines) if m]
    return len(places) % 4 == 0 and places == [
        "first" if k == 0 else f"first + {k}" for k in range(len(places))
    ]
