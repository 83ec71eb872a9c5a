"""Checks the tables of source places that may stand before a module's computations."""

from __future__ import annotations

import re

from hlo2graph.frontend.cursor import Cursor
from hlo2graph.frontend.scan import Fault

_LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
_FRAME = ("file_location_id", "parent_frame_id")


def _rows(title: str, row: str) -> str:
    return rf"\s*+{title}(?>\s++\d{{1,9}}\s*+{row})*+"


def _numbers(names: tuple[str, ...]) -> str:
    return r"\{" + " ".join(rf"{name}=\d{{1,9}}" for name in names) + r"\}"


_PLAIN = re.compile(
    _rows("FileNames", r'"[^"\\]*+"')
    + _rows("FunctionNames", r'"[^"\\]*+"')
    + _rows("FileLocations", _numbers(_LOCATION))
    + _rows("StackFrames", _numbers(_FRAME))
    + r"\s*+",
    re.ASCII,
)  # as compilers print them


def check_tables(text: str) -> None:
    """Raise a Fault where `text` is not the four tables, in their order.

    A row of names may lack its name, as XLA has it.
    """
    if _PLAIN.fullmatch(text):
        return
    cursor = Cursor(text)
    for title in ("FileNames", "FunctionNames"):
        cursor.want(title, f"the table {title}")
        while cursor.kind == "integer":
            cursor.integer()
            if cursor.kind == "string":
                cursor.string()
    for title, names in (("FileLocations", _LOCATION), ("StackFrames", _FRAME)):
        cursor.want(title, f"the table {title}")
        while cursor.kind == "integer":
            cursor.integer()
            _check_fields(cursor, names)
    cursor.done()


def _check_fields(cursor: Cursor, names: tuple[str, ...]) -> None:
    cursor.want("{", f"{{{' '.join(f'{name}=1' for name in names)}}}")
    lacking = set(names)
    while not cursor.sees("}"):
        cursor.eats(",")
        start, end = cursor.start, cursor.end
        name = cursor.key(" or ".join(f"{name}=" for name in names if name in lacking) or "'}'")
        if name not in lacking:
            known = ", ".join(names)
            raise Fault(f"expected each of {known} once, found {name}", start, end)
        lacking.remove(name)
        cursor.int32()
    if lacking:
        cursor.fail(" and ".join(f"{name}=" for name in names if name in lacking))
    cursor.advance()
