"""Reads the StableHLO out of what `jax.export.Exported.serialize` wrote.

That is a FlatBuffer: a table whose fields are found through a list of offsets. One of its fields is
enough here, and needs neither jax nor the flatbuffers package.
"""

from __future__ import annotations

from struct import error, unpack_from

BYTECODE = b"ML\xefR"  # how MLIR bytecode begins
MODULE = 13  # the field `mlir_module_serialized` of the table Exported


def exported_module(data: bytes) -> bytes | None:
    """Return the MLIR bytecode in a serialized `jax.export.Exported`; None where `data` is none."""
    try:
        (table,) = unpack_from("<I", data, 0)
        (back,) = unpack_from("<i", data, table)
        offsets = table - back
        if offsets < 0:
            return None
        (size,) = unpack_from("<H", data, offsets)
        slot = 4 + 2 * MODULE
        if slot + 2 > size:
            return None
        (inside,) = unpack_from("<H", data, offsets + slot)
        place = table + inside
        (ahead,) = unpack_from("<I", data, place)
        (length,) = unpack_from("<I", data, place + ahead)
    except error:
        return None
    found = data[place + ahead + 4 :][:length]
    return found if inside and len(found) == length and found.startswith(BYTECODE) else None
