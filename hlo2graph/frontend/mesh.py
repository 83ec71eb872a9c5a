"""Checks the parts that shardings and replica groups share: meshes, their axes, iota tiles."""

from __future__ import annotations

from math import prod

from hlo2graph.frontend.cursor import Cursor
from hlo2graph.frontend.scan import Fault

_LIST = "groups such as {{0,1},{2,3}} or [2,2]<=[4]"


class Mesh:
    """The axes of a mesh by name: their sizes. A mesh of one device has none."""

    def __init__(self, sizes: dict[str, int], *, is_maximal: bool = False) -> None:
        self.is_maximal = is_maximal
        self.has_axes = bool(sizes)
        self._sizes = sizes
        self._used: set[tuple[str, int]] = set()  # an axis, or a part of one by what is before it

    def axis(self, cursor: Cursor) -> int:
        """Read `'x'`, or a part of an axis `'x':(1)2`; return how many devices it spans."""
        start, end = cursor.start, cursor.end
        name = cursor.string("an axis of the mesh in quotes")
        size = self._sizes.get(name)
        if size is None and name.isdecimal() and int(name) < len(self._sizes):
            name, size = list(self._sizes.items())[int(name)]
        if size is None:
            raise Fault(f"the mesh has no axis {name}", start, end)
        before, whole = 0, size
        if cursor.eats(":"):
            cursor.want("(")
            before = cursor.integer()
            cursor.want(")")
            size = cursor.integer()
            if before < 1 or size < 2 or before * size > whole or size == whole:
                raise Fault(f"({before}){size} is no part of axis {name}, {whole}", start, end)
        if (name, before) in self._used or (before and (name, 0) in self._used):
            raise Fault(f"axis {name} is used twice", start, end)
        self._used.add((name, before))
        return size

    def axes(self, cursor: Cursor) -> list[int]:
        """Read axes in braces; return how many devices each spans."""
        return cursor.items("{", "}", lambda: self.axis(cursor), "axes in braces")


def sees_mesh(cursor: Cursor) -> bool:
    """Return whether a mesh is at hand."""
    return cursor.sees("mesh") or cursor.sees("maximal_mesh")


def read_mesh(cursor: Cursor) -> Mesh:
    """Read `mesh['x'=2]`, with `, device_ids=(1,0)` or not; `maximal_mesh[device_id=0]`."""
    if cursor.eats("maximal_mesh"):
        cursor.want("[")
        cursor.want("device_id=")
        cursor.integer()
        cursor.want("]")
        return Mesh({}, is_maximal=True)
    cursor.want("mesh")

    def axis() -> tuple[str, int]:
        name = cursor.string("an axis of the mesh in quotes")
        cursor.want("=")
        return name, cursor.integer("the axis' size")

    start = cursor.start
    axes = cursor.items("[", "]", axis, "'[' and the axes of the mesh")
    sizes = dict(axes)
    if len(sizes) < len(axes):
        raise Fault("the axes of a mesh have a name each", start, cursor.start)
    if cursor.eats(",") and cursor.eats("device_ids="):
        _device_ids(cursor, prod(sizes.values()))
    return Mesh(sizes)


def _device_ids(cursor: Cursor, count: int) -> None:
    if cursor.sees("("):
        start = cursor.start
        cursor.advance()
        if cursor.sees("["):
            read_iota(cursor)
            cursor.want(")")
            return
        cursor.jump(start)
    start = cursor.start
    found = cursor.items("(", ")", cursor.integer, "devices in parentheses")
    if len(found) != count:
        raise Fault(f"expected {count} devices, found {len(found)}", start, start + 1)
    if found == list(range(count)):
        raise Fault("device_ids in their usual order are left out", start, cursor.start)


def read_iota(cursor: Cursor) -> None:
    """Step over `[8]` or `[4,2]T(1,0)`."""
    dims = nonempty(cursor, "[", "]")
    if len(dims) == 1:
        return
    cursor.want("T", "'T(' and an order of these dimensions")
    start = cursor.start
    order = nonempty(cursor, "(", ")")
    if len(order) != len(dims) or max(order) >= len(dims):
        message = f"expected an order of {len(dims)} dimensions, such as T(1,0)"
        raise Fault(message, start, cursor.start)


def nonempty(cursor: Cursor, opening: str, end: str) -> list[int]:
    """Read one integer or more in brackets."""
    cursor.want(opening, f"'{opening}' and integers")
    numbers = integers(cursor)
    cursor.want(end, f"',' or '{end}'")
    return numbers


def integers(cursor: Cursor) -> list[int]:
    """Read one integer or more, with commas between."""
    numbers = [cursor.integer()]
    while cursor.eats(","):
        numbers.append(cursor.integer())
    return numbers


def check_groups(cursor: Cursor) -> None:
    """Step over replica groups: lists, `[2,4]<=[8]`, or axes of a mesh."""
    if sees_mesh(cursor):
        start = cursor.start
        mesh = read_mesh(cursor)
        if prod(mesh.axes(cursor)) <= 1:
            raise Fault("each group must have more than one device", start, cursor.start)
        return
    start = cursor.start
    if cursor.sees("["):
        tiles = nonempty(cursor, "[", "]")
        if len(tiles) != 2:
            message = f"expected [groups,devices in each], found {len(tiles)} dimensions"
            raise Fault(message, start, cursor.start)
        cursor.want("<=")
        read_iota(cursor)
        return

    def group() -> None:
        cursor.items("{", "}", cursor.integer, _LIST)

    cursor.items("{", "}", group, _LIST)
