"""Checks the syntax of a sharding, of which the text is kept and nothing is used."""

from __future__ import annotations

import re

from hlo2graph.frontend.scan import Fault, shown

_STRING = r"""(?>"(?>[^"\\]++|\\.)*+"|'(?>[^'\\]++|\\.)*+')"""
_TEXT = rf"(?>[^{{}}\"']++|{_STRING})"
_FLAT = rf"\{{{_TEXT}*+\}}"
_INTS = r"\d++(?>\s*+,\s*+\d++)*+"
_TYPES = r"(?>(?:manual|replicated|maximal|unreduced|unknown)\s*+(?>,\s*+(?!\})|(?=\})))*+"
_PART = re.compile(
    rf"\s*+(?>"
    rf"devices=\[\s*+(?P<tiles>{_INTS})\s*+\]\s*+"
    rf"(?:<=\s*+\[(?P<iota>{_INTS})\](?:T\((?P<order>{_INTS})\))?+|(?P<devices>{_INTS}))"
    rf"|device=(?P<device>\d++)"
    rf"|last_tile_dims=\{{\s*+{_TYPES}\}}"
    rf"|metadata=(?:{_FLAT}|\{{(?>\s++|,|{_FLAT})*+\}})"
    rf"|(?:shard_as|shard_like)\s++\d++"
    rf"|(?P<kind>maximal|replicated|manual|unknown|unreduced)(?![\w=])"
    rf"|(?P<last>last_tile_dim_replicate)(?!\w)"
    rf")\s*+",
    re.ASCII | re.DOTALL,
)
_MESH = re.compile(
    rf"\{{\s*+mesh\[[^\[\]]*+\]\s*+,(?>[^{{}}\"']++|{_STRING}|{_FLAT})*+\}}", re.ASCII | re.DOTALL
)
_NEXT = re.compile(r"\s*+(?P<mark>[{},])\s*+")


def check_sharding(text: str) -> None:
    """Raise a Fault where `text` is no sharding, single or of a tuple."""
    if _MESH.fullmatch(text):
        return
    if not text.startswith("{"):
        raise Fault(f"expected a sharding in braces, found {shown(text)}", 0, len(text))
    inner = _NEXT.match(text, 1)
    is_tuple = inner is not None and inner["mark"] in "{}"
    at = _tuple(text) if is_tuple else _single(text, 0)
    if at != len(text):
        raise Fault(f"unexpected text behind the sharding: {shown(text[at:])}", at, len(text))


def _tuple(text: str) -> int:
    """Return the offset behind `{{...}, {...}}`."""
    at = first = _skip(text, 1)
    while True:
        at = _skip(text, at)
        if at == first and text.startswith("}", at):
            return at + 1
        mesh = _MESH.match(text, at)
        at = _skip(text, mesh.end() if mesh else _single(text, at))
        if text.startswith("}", at):
            return at + 1
        at += 1
        if text[at - 1 : at] != ",":
            raise Fault("expected ',' or '}' behind a sharding of the tuple", at - 1, at)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _single(text: str, start: int) -> int:
    """Return the offset behind the sharding `{...}` at `start`."""
    if not text.startswith("{", start):
        raise Fault(f"expected a sharding in braces, found {shown(text[start:])}", start, len(text))
    at = start + 1
    kind: str | None = None
    fields: dict[str, str] = {}
    while not text.startswith("}", at):
        part = _PART.match(text, at)
        if not part:
            found = shown(text[at:])
            raise Fault(f"expected a part of a sharding, found {found}", at, max(at + 1, len(text)))
        fields |= {name: value for name, value in part.groupdict().items() if value}
        kind = part["kind"] or kind
        at = part.end()
    if why := _fault(kind, fields):
        raise Fault(why, start, at + 1)
    return at + 1


def _fault(kind: str | None, fields: dict[str, str]) -> str | None:
    """Say why the parts of a sharding do not go together, or None."""
    placed = "device" in fields or "tiles" in fields
    if kind == "maximal":
        return None if placed else "a maximal sharding has one device"
    if kind:
        return f"a sharding that is {kind} has no devices" if placed else None
    if "tiles" not in fields:
        return "expected a sharding's tiles: devices=[2,1]0,1"
    if "iota" in fields:
        if ("," in fields["iota"]) != ("order" in fields):
            return "devices in several dimensions, and those alone, have an order T(...)"
        return None
    return None if "," in fields["devices"] else "a tiled sharding has more than one device"
