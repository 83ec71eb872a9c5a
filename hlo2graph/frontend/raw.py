"""Checks the syntax of attributes that are kept as text: metadata, replica groups, origin, ...

The text is then printed as it was written; only what it says of syntax is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hlo2graph.frontend.cursor import STRING, Cursor
from hlo2graph.frontend.json import skip_json
from hlo2graph.frontend.mesh import check_groups
from hlo2graph.frontend.scan import Fault
from hlo2graph.frontend.sharding import check_sharding
from hlo2graph.frontend.words import choose

_TEXTS = (
    *("op_type", "op_name", "source_file"),
    *("deduplicated_name", "scheduling_name", "metadata_payload"),
)
_LINES = (
    *("source_line", "source_end_line", "source_column", "source_end_column"),
    "stack_frame_id",
)
_PLAIN_METADATA = re.compile(
    rf"\{{(?>\s*+(?:{'|'.join(_TEXTS)})=\"[^\"\\]*+\"|\s*+(?:{'|'.join(_LINES)})=\d{{1,9}}(?!\w))*+\}}"
)
_KEY = re.compile(rf"(\w++)=|{STRING}")
_PROFILES = range(4)


def check_raw(name: str, text: str) -> None:
    """Raise a Fault where `text` is no value of attribute `name`."""
    if name == "metadata" and _is_plain_metadata(text):
        return
    check = _CHECKS.get(name)
    if check:
        cursor = Cursor(text)
        check(cursor)
        cursor.done()


def _is_plain_metadata(text: str) -> bool:
    """Compilers print it like this; people may do it otherwise."""
    if not _PLAIN_METADATA.fullmatch(text):
        return False
    keys = [key for key in _KEY.findall(text) if key]
    return len(keys) == len(set(keys))


def check_metadata(cursor: Cursor) -> None:
    """Step over `{op_name="..." source_line=1}`."""
    cursor.want("{", 'metadata such as {op_name="..." source_file="..." source_line=1}')
    seen: set[str] = set()
    while not cursor.eats("}"):
        cursor.eats(",")
        start, end = cursor.start, cursor.end
        name = cursor.key("a name of metadata, such as op_name=")
        if name in seen:
            raise Fault(f"{name} is given twice", start, end)
        seen.add(name)
        _metadata_value(name, cursor, start, end)


def _metadata_value(name: str, cursor: Cursor, start: int, end: int) -> None:
    if name in _TEXTS:
        cursor.string()
    elif name in _LINES:
        cursor.int32()
    elif name == "profile_type":
        for profile in cursor.items("{", "}", cursor.integer, "integers in braces"):
            if profile not in _PROFILES:
                raise Fault(f"there is no profile type {profile}", start, end)
    else:
        known = ", ".join((*_TEXTS, *_LINES, "profile_type"))
        raise Fault(f"metadata has no {name}; it may have {known}", start, end)


def _check_backend_config(cursor: Cursor) -> None:
    if cursor.kind == "string":
        cursor.string()
    else:
        skip_json(cursor, 'a backend_config: "text" or {"json": 1}')


def check_frontend_attributes(cursor: Cursor) -> None:
    """Step over `{name="value", other={"json": 1}}`."""

    def pair() -> None:
        cursor.key('a name and a value, such as name="value"')
        if cursor.kind == "string":
            cursor.string()
        else:
            skip_json(cursor, 'a value: "text" or {"json": 1}')

    cursor.items("{", "}", pair, 'attributes in braces, such as {name="value"}')


def _check_statistics(cursor: Cursor) -> None:
    cursor.want("{", "statistics such as {visualizing_index=0,name=1.5}")
    if cursor.eats("}"):
        return
    cursor.key("visualizing_index=")
    cursor.integer()
    while cursor.eats(","):
        cursor.key("a statistic's name and '='")
        if cursor.kind not in ("integer", "decimal") or "inf" in cursor.text:
            cursor.fail("a number")
        cursor.advance()
    cursor.want("}", "',' or '}'")


def _check_accuracy(cursor: Cursor) -> None:
    what = "{tolerance={rtol=..., atol=..., ulps=...}} or {mode=highest}"
    cursor.want("{", what)
    name = cursor.key(what)
    if name == "mode":
        choose("result_accuracy", cursor)
    elif name == "tolerance":
        cursor.items("{", "}", lambda: _tolerance(cursor), "tolerances in braces")
    else:
        cursor.fail(f"{what} in the place of {name}=")
    cursor.want("}")


def _tolerance(cursor: Cursor) -> None:
    what = "atol=, rtol= or ulps="
    if cursor.text not in ("atol=", "rtol=", "ulps="):
        cursor.fail(what)
    cursor.advance()
    start, end = cursor.start, cursor.end
    if cursor.decimal() < 0:
        raise Fault("a tolerance is 0 or more", start, end)


def shape_index(cursor: Cursor) -> tuple[int, ...]:
    """Read `{0,1}`, in which a last comma may stand."""
    cursor.want("{", "an index in braces, such as {0}")
    index: list[int] = []
    while not cursor.sees("}"):
        index.append(cursor.integer())
        if not cursor.eats(","):
            break
    cursor.want("}", "',' or '}'")
    return tuple(index)


def _check_aliasing(cursor: Cursor) -> None:
    cursor.want("{", "aliases such as {{output index}: (operand, {index})}")
    while not cursor.sees("}"):
        shape_index(cursor)
        cursor.want(":", "':' and (operand, {index})")
        cursor.want("(", "(operand, {index})")
        cursor.integer("an operand's number")
        cursor.want(",", "',' and an index in braces")
        shape_index(cursor)
        cursor.want(")")
        if not cursor.eats(","):
            break
    cursor.want("}", "',' or '}'")


def original_array(cursor: Cursor) -> None:
    """Step over `{"name" {0}}` or `{}`."""
    cursor.want("{", '{"name" {index}}')
    if cursor.kind == "string":
        cursor.string()
        if cursor.sees("{"):
            shape_index(cursor)
    cursor.want("}")


def _check_origin(cursor: Cursor) -> None:
    cursor.want("{", 'an origin such as {{"name" {0}}}')
    if cursor.eats("["):
        cursor.want("synthetic_call")
        cursor.want("]")
        cursor.want("}")
        return
    depth = 0
    while not cursor.eats("}"):
        if cursor.sees("{"):
            original_array(cursor)
            continue
        if cursor.eats("("):
            depth += 1
            continue
        if not depth or not (cursor.sees(")") or cursor.sees(",")):
            cursor.fail('\'(\', ")" or {"name" {index}}' if depth else "'(' or {\"name\" {index}}")
        depth -= cursor.sees(")")
        cursor.advance()


def _check_replication(cursor: Cursor) -> None:
    def read() -> None:
        if not (cursor.eats("true") or cursor.eats("false")):
            cursor.fail("true or false")

    cursor.items("{", "}", read, "{true, false, ...}")


def _check_precision(cursor: Cursor) -> None:
    cursor.items("{", "}", lambda: choose("operand_precision", cursor), "{default, high, highest}")


def _check_lists(cursor: Cursor) -> None:
    def read() -> None:
        cursor.items("{", "}", cursor.integer, "integers in braces")

    cursor.items("{", "}", read, "lists of integers such as {{1,2},{3,4}}")


def _check_pairs(cursor: Cursor) -> None:
    def read() -> None:
        start = cursor.start
        pair = cursor.items("{", "}", cursor.integer, "a pair such as {0,1}")
        if len(pair) != 2:
            message = f"expected two devices in each pair, found {len(pair)}"
            raise Fault(message, start, cursor.start)

    cursor.items("{", "}", read, "pairs such as {{0,1},{1,0}}")


def _check_domain(cursor: Cursor) -> None:
    cursor.want("{", '{kind="sharding", entry={...}, exit={...}}')
    lacking = {"kind", "entry", "exit"}
    while not cursor.eats("}"):
        cursor.eats(",")
        name = cursor.text[:-1]
        if name not in lacking:
            cursor.fail(" or ".join(f"{name}=" for name in sorted(lacking)) or "'}'")
        lacking.remove(name)
        cursor.advance()
        if name == "kind":
            if cursor.text[1:-1] != "sharding":
                cursor.fail('"sharding"')
            cursor.string()
        else:
            check_sharding(cursor, check_metadata)
    if lacking:
        cursor.fail(f"{min(lacking)}= in the domain before this")


_CHECKS: dict[str, Callable[[Cursor], None]] = {
    "backend_config": _check_backend_config,
    "domain": _check_domain,
    "frontend_attributes": check_frontend_attributes,
    "metadata": check_metadata,
    "operand_precision": _check_precision,
    "origin": _check_origin,
    "output_to_operand_aliasing": _check_aliasing,
    "parameter_replication": _check_replication,
    "replica_groups": check_groups,
    "result_accuracy": _check_accuracy,
    "sharding": lambda cursor: check_sharding(cursor, check_metadata),
    "slice_sizes": _check_lists,
    "source_target_pairs": _check_pairs,
    "statistics": _check_statistics,
}
