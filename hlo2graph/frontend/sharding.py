"""Checks the syntax of a sharding, of which the text is kept and nothing is used."""

from __future__ import annotations

from collections.abc import Callable

from hlo2graph.frontend.cursor import Cursor
from hlo2graph.frontend.mesh import Mesh, integers, nonempty, read_iota, read_mesh, sees_mesh
from hlo2graph.frontend.scan import Fault

_Metadata = Callable[[Cursor], None]
_KINDS = ("replicated", "maximal", "manual", "unknown", "unreduced")  # the first found decides
_TYPES = ("maximal", "replicated", "manual", "unreduced")
_PART = (
    "a part of a sharding: replicated, maximal, manual, unknown, unreduced, device=, devices=, "
    "last_tile_dims=, last_tile_dim_replicate, shard_as, shard_like or metadata="
)


def check_sharding(cursor: Cursor, metadata: _Metadata) -> None:
    """Step over a sharding, single or of a tuple."""
    cursor.want("{", "a sharding in braces")
    if not (cursor.sees("{") or cursor.sees("}")):
        _single(cursor, metadata)
        return
    if cursor.eats("}"):
        return
    while True:
        cursor.want("{", "a sharding in braces")
        _single(cursor, metadata)
        if not cursor.eats(","):
            break
    cursor.want("}", "',' or '}' behind a sharding of the tuple")


def _single(cursor: Cursor, metadata: _Metadata) -> None:
    """Step over the sharding behind the '{' that begins it."""
    if sees_mesh(cursor):
        _named(cursor, read_mesh(cursor), metadata)
        return
    start = cursor.start
    kinds: set[str] = set()
    lasts: set[str] = set()
    tiles = devices = subgroups = 0
    is_iota = False
    while not cursor.eats("}"):
        if cursor.text in _KINDS:
            kinds.add(cursor.text)
            cursor.advance()
        elif cursor.eats("device="):
            cursor.integer("the device's number")
            devices = 1
        elif cursor.eats("devices="):
            tiles, listed = _tiles(cursor)
            is_iota = is_iota or not listed
            devices += listed
        else:
            if cursor.text.startswith("last_tile_dim"):
                lasts.add(cursor.text)
            subgroups += _extra(cursor, metadata)
    kind = next((kind for kind in _KINDS if kind in kinds), None)
    why = _fault(kind, tiles, devices, is_iota=is_iota)
    if why is None and not kind and subgroups > tiles:
        why = f"there are {tiles} tile dimensions, and so no {subgroups} last ones"
    if len(lasts) > 1:
        why = "last_tile_dim_replicate and last_tile_dims exclude each other"
    if why:
        raise Fault(why, start, cursor.start)


def _tiles(cursor: Cursor) -> tuple[int, int]:
    """Step over `[2,1]0,1` or `[2,1]<=[2]`; return how many dimensions and devices are written."""
    start = cursor.start
    dims = nonempty(cursor, "[", "]")
    if min(dims) < 0:
        raise Fault("tiles are counted from 0 on", start, cursor.start)
    if cursor.eats("<="):
        read_iota(cursor)
        return len(dims), 0
    return len(dims), len(integers(cursor))


def _extra(cursor: Cursor, metadata: _Metadata) -> int:
    """Step over a part that names no devices; return how many last tile dimensions it types."""
    if cursor.eats("shard_as") or cursor.eats("shard_like"):
        cursor.integer("the number of a shard group")
    elif cursor.eats("metadata="):
        _metadata(cursor, metadata)
    elif cursor.eats("last_tile_dims="):

        def read() -> None:
            if cursor.text not in _TYPES:
                cursor.fail(" or ".join(_TYPES))
            cursor.advance()

        return len(cursor.items("{", "}", read, "{manual, replicated, ...}"))
    elif cursor.eats("last_tile_dim_replicate"):
        return 1
    else:
        cursor.fail(_PART)
    return 0


def _metadata(cursor: Cursor, metadata: _Metadata) -> None:
    """Step over metadata, or a list of them."""
    start = cursor.start
    cursor.want("{", "metadata in braces")
    is_list = cursor.sees("{")
    cursor.jump(start)
    if is_list:
        cursor.items("{", "}", lambda: metadata(cursor), "metadata in braces")
    else:
        metadata(cursor)


def _fault(kind: str | None, tiles: int, devices: int, *, is_iota: bool) -> str | None:
    """Say why the parts of a sharding do not go together, or None."""
    if kind == "maximal":
        return None if devices == 1 else "a maximal sharding has one device"
    if kind:
        return f"a sharding that is {kind} has no devices" if devices else None
    if not tiles:
        return "expected a sharding's tiles: devices=[2,1]0,1"
    return None if is_iota or devices > 1 else "a tiled sharding has more than one device"


def _named(cursor: Cursor, mesh: Mesh, metadata: _Metadata) -> None:
    """Step over what follows the mesh of a sharding by axes."""
    if mesh.is_maximal:
        _last_metadata(cursor, metadata)
        return
    cursor.eats(",")
    if cursor.text == "replicated" or (mesh.has_axes and cursor.text in ("unreduced", "manual")):
        cursor.advance()
        _last_metadata(cursor, metadata)
        return
    cursor.items("[", "]", lambda: _dimension(cursor, mesh), "[{axes}, ...] or replicated")
    while not cursor.eats("}"):
        cursor.want(",", "',' or '}'")
        if cursor.text in ("replicated=", "unreduced=", "manual="):
            cursor.advance()
            mesh.axes(cursor)
        elif cursor.eats("metadata="):
            _metadata(cursor, metadata)
        else:
            cursor.fail("replicated=, unreduced=, manual= or metadata=")


def _last_metadata(cursor: Cursor, metadata: _Metadata) -> None:
    if cursor.eats(","):
        cursor.want("metadata=")
        _metadata(cursor, metadata)
    cursor.want("}", "',' and metadata=, or '}'")


def _dimension(cursor: Cursor, mesh: Mesh) -> None:
    """Step over the axes of one dimension: `{'x', 'y'}`, `{'x', ?}`."""
    is_open = False

    def read() -> None:
        nonlocal is_open
        if is_open:
            cursor.fail("'}' behind '?'")
        is_open = cursor.eats("?")
        if not is_open:
            mesh.axis(cursor)

    cursor.items("{", "}", read, "the axes of a dimension in braces")
