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

_READ = re.compile(r" *const [\w:]+ (?P<name>\w+) = (?:hlo::load\()?(?P<array>p\d+)\[[^\]]*\]\)?;$")
_INTEGER = re.compile(r" *const (?:int|long long) (?P<name>\w+) = .*;$")
_LOADED = re.compile(
    r"(?P<margin> *)const float (?P<name>\w+) = hlo::load\((?P<raw>\w+_raw\w*)\);$"
)
_STORED = re.compile(
    r"(?P<margin> *)const auto (?P<name>\w+_raw\w*) = "
    r"hlo::Store<hlo::(?P<type>\w+)>::of\((?P<value>\w+)\);$"
)


def two_by_two(lines: Sequence[str], types: Mapping[str, str]) -> list[str]:
    """Return the lines of several lanes; `types` are those of the arrays p0, p1, ..."""
    raw = {m["name"]: types[m["array"]] for m in map(_READ.match, lines) if m}

    def kind(line: str) -> tuple[str, str]:
        if loaded := _LOADED.match(line):
            return "load", raw.get(loaded["raw"], "")
        stored = _STORED.match(line)
        return ("store", stored["type"]) if stored else ("", "")

    kinds = {kind(line) for line in lines}
    widens = any(what == "load" and dtype in WIDENED for what, dtype in kinds)
    found: list[str] = []
    for (what, dtype), several in groupby(_reads_first(lines) if widens else lines, kind):
        run = list(several)
        if len(run) % 2 == 0 and what == "load" and dtype in WIDENED:
            found += _widened(run)
        elif len(run) % 2 == 0 and what == "store" and dtype in PAIRED:
            found += _rounded(run, dtype)
        else:
            found += run
    return found


def _reads_first(lines: Sequence[str]) -> list[str]:
    names = {m["name"] for m in map(_READ.match, lines) if m}
    names |= {m["name"] for m in map(_INTEGER.match, lines) if m}
    early, late = parted(lines, names)
    return early + late


def _widened(lines: Sequence[str]) -> Iterator[str]:
    found = [m for m in map(_LOADED.match, lines) if m]
    margin = found[0]["margin"]
    for low, high in zip(found[::2], found[1::2], strict=True):
        two = f"{low['name']}_two"
        yield f"{margin}const hlo::Two {two} = hlo::two({low['raw']}, {high['raw']});"
        yield f"{margin}float {low['name']} = {two}.low, {high['name']} = {two}.high;"
    yield f"{margin}if (hlo::any_nan({', '.join(m['name'] for m in found)})) {{"
    yield from (f"{margin}  {m['name']} = hlo::load({m['raw']});" for m in found)
    yield f"{margin}}}"


def _rounded(lines: Sequence[str], dtype: str) -> Iterator[str]:
    found = [m for m in map(_STORED.match, lines) if m]
    margin = found[0]["margin"]
    pairs = list(zip(found[::2], found[1::2], strict=True))
    for low, high in pairs:
        values = f"{low['value']}, {high['value']}"
        yield f"{margin}hlo::u32 {low['name']}_two = hlo::pair<hlo::{dtype}>({values});"
    values = ", ".join(m["value"] for m in found)
    yield f"{margin}if (!hlo::pairs_exactly<hlo::{dtype}>({values})) {{"
    for low, high in pairs:
        values = f"{low['value']}, {high['value']}"
        yield f"{margin}  {low['name']}_two = hlo::pair_exact<hlo::{dtype}>({values});"
    yield f"{margin}}}"
    for low, high in pairs:
        for k, half in enumerate((low, high)):
            taken = f"hlo::half<hlo::{dtype}>({low['name']}_two, {k})"
            yield f"{margin}const auto {half['name']} = {taken};"
