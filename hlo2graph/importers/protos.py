"""What an HLO proto holds: a module, alone or inside HloProto, HloSnapshot and their like.

Messages do not say what they are. A module is the one whose first field is its name, which is text;
in all others the first field is a message.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.importers.wire import BYTES, Field, WireError, fields

NAME, COMPUTATIONS = 1, 3  # of HloModuleProto; a computation's own first field is its name too
INNER = 1  # HloProto.hlo_module, HloSnapshot.hlo, HloUnoptimizedSnapshot.hlo_module
ARGUMENTS = 2  # of HloSnapshot; HloUnoptimizedSnapshot has lists of them, a list per device
LITERAL_SHAPE = 1
DEEPEST = 2  # HloSnapshot holds an HloProto, which holds the module


@dataclass(frozen=True, slots=True)
class Peeled:
    """A serialized HloModuleProto, and the LiteralProtos of the arguments that came with it."""

    module: bytes
    arguments: tuple[memoryview, ...] = ()


def begins_like_proto(data: bytes) -> bool:
    """Tell whether bytes may be one of these messages, cut short or not: the first field is 1."""
    return data[:1] == b"\x0a"


def peel(data: bytes) -> Peeled:
    """Return the module in a message, and its arguments.

    Raises:
        WireError: the bytes are no message, or none that holds a module.
    """
    message = memoryview(data)
    arguments: tuple[memoryview, ...] = ()
    for _ in range(DEEPEST + 1):
        found = tuple(fields(message))
        if _is_module(found):
            return Peeled(bytes(message), arguments)
        inner = [f for f in found if f.number == INNER and f.kind == BYTES]
        if not inner:
            break
        arguments = _arguments(found) or arguments
        message = inner[0].data
    raise WireError("it holds no HLO module")


def _is_module(found: tuple[Field, ...]) -> bool:
    computations = [f for f in found if f.number == COMPUTATIONS and f.kind == BYTES]
    return (
        bool(computations) and _is_named(found) and _is_named(tuple(fields(computations[0].data)))
    )


def _is_named(found: tuple[Field, ...]) -> bool:
    if not found or found[0].number != NAME or found[0].kind != BYTES:
        return False
    try:
        return str(found[0].data, "utf-8").isprintable()
    except UnicodeDecodeError:
        return False


def _arguments(found: tuple[Field, ...]) -> tuple[memoryview, ...]:
    """Return a snapshot's literals; of those for several devices, the first one's."""
    given = [f.data for f in found if f.number == ARGUMENTS and f.kind == BYTES]
    if given and not _is_literal(given[0]):
        given = [f.data for f in fields(given[0]) if f.kind == BYTES]
    return tuple(given)


def _is_literal(message: memoryview) -> bool:
    """A literal holds one shape, which begins with a number; a list holds literals alone."""
    first = next(iter(fields(message)), None)
    if first is None or first.number != LITERAL_SHAPE or first.kind != BYTES:
        return False
    return all(f.kind != BYTES or f.number > LITERAL_SHAPE for f in fields(first.data))
