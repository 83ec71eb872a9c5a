"""Checks the syntax of attributes that are kept as text: sharding, metadata, replica groups, ...

Each form is a regular expression that never backtracks; `check_raw` tries the one of the name.
"""

from __future__ import annotations

import re

from hlo2graph.frontend.scan import Fault, shown
from hlo2graph.frontend.sharding import check_sharding

_S = r"\s*+"
_STRING = r"""(?>"(?>[^"\\]++|\\.)*+"|'(?>[^'\\]++|\\.)*+')"""
_TEXT = rf"(?>[^{{}}\"']++|{_STRING})"
_NAME = r"[A-Za-z_][\w.\-]*+"
_NUMBER = r"-?(?>\d++\.?\d*+|\.\d++)(?>[eE][+-]?\d++)?+"
_TEXTS = "op_type|op_name|source_file|deduplicated_name|scheduling_name|metadata_payload"
_LINES = "source_line|source_end_line|source_column|source_end_column|stack_frame_id"
_DEEPEST = 8  # braces in braces of a value


def _nested(depth: int) -> str:
    """Return the pattern of braces around text and, `depth` deep, braces."""
    inner = _TEXT
    for _ in range(depth):
        inner = rf"(?>{_TEXT}|\{{{inner}*+\}})"
    return rf"\{{{inner}*+\}}"


def _list(item: str) -> str:
    """Return the pattern of items in braces, with commas between them."""
    return rf"\{{{_S}(?>{item}{_S}(?>,{_S}(?!\}})|(?=\}})))*+\}}"


def _attributes(item: str) -> str:
    """Return the pattern of attributes in braces, a comma or nothing before each."""
    return rf"\{{{_S}(?>,?{_S}{item}{_S})*+\}}"


_BRACES = _nested(_DEEPEST)
_INTS = _list(r"-?\d++")
_INDEX = _list(r"\d++")
_METADATA = _attributes(
    rf"(?>(?>{_TEXTS})={_S}{_STRING}|(?>{_LINES})={_S}-?\d++|profile_type={_S}{_INTS})"
)
_SUB_AXIS = r"(?>:\(\d++\)\d++)?+"
_MESH = rf"mesh\[[^\[\]]*+\](?>{_S},{_S}device_ids=\([^()]*+\))?+{_S}{_list(_STRING + _SUB_AXIS)}"
_IOTA = (
    rf"\[{_S}\d++{_S},{_S}\d++{_S}\]{_S}<={_S}"
    rf"\[{_S}\d++{_S}(?>\]|(?>,{_S}\d++{_S})++\]{_S}T\({_S}\d++{_S}(?>,{_S}\d++{_S})++\))"
)
_TOLERANCE = _list(rf"(?>atol|rtol|ulps)={_S}{_NUMBER}")
_ORIGINAL = rf"\{{{_S}(?>{_STRING}{_S}(?>{_INDEX})?+)?+{_S}\}}"
_CALL = r"\[synthetic_call\]"
_ORIGIN = rf"(?>\((?>[(),\s]|{_ORIGINAL}|{_CALL})*+(?<=[)\s])|{_CALL}|(?>{_ORIGINAL}{_S})*+)"

_FORMS: dict[str, tuple[str, str]] = {
    "backend_config": (rf"{_STRING}|\{{.*\}}", '"text" or {"json": 1}'),
    "domain": (
        rf"\{{{_S}kind={_STRING},{_S}entry={_BRACES},{_S}exit={_BRACES}{_S}\}}",
        '{kind="sharding", entry={...}, exit={...}}',
    ),
    "frontend_attributes": (
        _list(rf"{_NAME}={_S}(?>{_STRING}|{_BRACES})"),
        '{name="value", ...}',
    ),
    "metadata": (_METADATA, '{op_name="..." source_file="..." source_line=1}'),
    "operand_precision": (_list("(?i:default|highest|high)"), "{default, high, highest}"),
    "origin": (rf"\{{{_S}{_ORIGIN}{_S}\}}", '{{"name" {0}}, ...}'),
    "output_to_operand_aliasing": (
        _list(rf"{_INDEX}{_S}:{_S}\({_S}\d++{_S},{_S}{_INDEX}{_S}\)"),
        "{{output index}: (operand, {index}), ...}",
    ),
    "parameter_replication": (_list("true|false"), "{true, false, ...}"),
    "replica_groups": (rf"{_list(_INTS)}|{_IOTA}|{_MESH}", "{{0,1},{2,3}} or [2,2]<=[4]"),
    "result_accuracy": (
        rf"\{{{_S}(?>tolerance={_TOLERANCE}|mode=(?i:default|highest)){_S}\}}",
        "{tolerance={rtol=..., atol=..., ulps=...}} or {mode=highest}",
    ),
    "slice_sizes": (_list(_INTS), "{{1,2},{3,4}}"),
    "source_target_pairs": (_list(rf"\{{{_S}-?\d++{_S},{_S}-?\d++{_S}\}}"), "{{0,1},{1,0}}"),
    "statistics": (_list(rf"{_NAME}={_S}{_NUMBER}"), "{visualizing_index=0,name=1}"),
}
_PATTERNS = {name: re.compile(form, re.DOTALL | re.ASCII) for name, (form, _) in _FORMS.items()}
_REPEATED = re.compile(rf"(?P<name>{_NAME})=|{_STRING}", re.ASCII | re.DOTALL)


def check_raw(name: str, text: str) -> None:
    """Raise a Fault where `text`, without comments, is no value of attribute `name`."""
    if name == "sharding":
        check_sharding(text)
        return
    pattern = _PATTERNS.get(name)
    if pattern is None:
        return
    if not pattern.fullmatch(text):
        message = f"expected {name} such as {_FORMS[name][1]}, found {shown(text)}"
        raise Fault(message, 0, max(1, len(text)))
    if name == "metadata":
        _check_unique(text)


def _check_unique(text: str) -> None:
    seen = [found["name"] for found in _REPEATED.finditer(text) if found["name"]]
    if len(seen) != len(set(seen)):
        twice = next(key for key in seen if seen.count(key) > 1)
        raise Fault(f"{twice} is given twice", 0, len(text))
