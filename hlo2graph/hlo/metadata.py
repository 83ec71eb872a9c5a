"""Reading an instruction's `metadata={...}`: the op's name and the source line it came from.

The metadata is kept as text. A source line is written inline (`source_file="a.py" source_line=3`)
or, by newer compilers, as a `stack_frame_id` into tables at the head of the module:

    FileNames        1 "a.py"
    FileLocations    1 {file_name_id=1 function_name_id=1 line=3 ...}
    StackFrames      1 {file_location_id=1 parent_frame_id=1}
"""

from __future__ import annotations

import re
from functools import lru_cache

_STRING = r'"((?:[^"\\]|\\.)*+)"'
_OP_NAME = re.compile(rf"\bop_name={_STRING}")
_SOURCE_FILE = re.compile(rf"\bsource_file={_STRING}")
_SOURCE_LINE = re.compile(r"\bsource_line=(\d{1,9})")
_FRAME = re.compile(r"\bstack_frame_id=(\d{1,9})")
_ROW = re.compile(
    rf"^[ \t]*(?:(?P<table>FileNames|FunctionNames|FileLocations|StackFrames)"
    rf"|(?P<id>\d{{1,9}})[ \t]*(?:{_STRING}|\{{(?P<fields>[^{{}}]*)\}}))[ \t]*\r?$",
    re.MULTILINE,
)
_FIELD = re.compile(r"(\w+)=(-?\d{1,9})")


def op_name(metadata: str) -> str | None:
    """Return the metadata's `op_name`, escapes undone, or None."""
    found = _OP_NAME.search(metadata)
    return _unescape(found[1]) if found else None


def source_line(tables: str, metadata: str) -> str | None:
    """Return `file:line` for an instruction's metadata, or None where it names no source.

    `tables` is `Module.tables`. An id that the tables lack gives None too.
    """
    line = _SOURCE_LINE.search(metadata)
    file = _SOURCE_FILE.search(metadata)
    if file:
        return f"{_unescape(file[1])}:{line[1]}" if line else _unescape(file[1])
    frame = _FRAME.search(metadata)
    return _frames(tables).get(int(frame[1])) if frame else None


@lru_cache(maxsize=8)
def _frames(tables: str) -> dict[int, str]:
    """Read the tables once: frame id to `file:line`."""
    names: dict[int, str] = {}
    rows: dict[str, dict[int, dict[str, int]]] = {"FileLocations": {}, "StackFrames": {}}
    table = ""
    for row in _ROW.finditer(tables):
        if row["table"]:
            table = row["table"]
        elif table == "FileNames":
            names[int(row["id"])] = _unescape(row[3] or "")
        elif table in rows:
            rows[table][int(row["id"])] = {
                k: int(v) for k, v in _FIELD.findall(row["fields"] or "")
            }
    frames: dict[int, str] = {}
    for number, frame in rows["StackFrames"].items():
        location = rows["FileLocations"].get(frame.get("file_location_id", 0), {})
        name = names.get(location.get("file_name_id", 0))
        if name is not None:
            frames[number] = f"{name}:{location.get('line', 0)}"
    return frames


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text
