"""The statements of thunk-sequence text: syntax only, every word a token that knows its place."""

from __future__ import annotations

from dataclasses import dataclass, field

from lark import Token

from hlo2graph.errors import Source, Span


@dataclass(frozen=True, slots=True)
class AllocationLine:
    """`allocation 0: 64, parameter 0, x`; number, owner and constant may be None."""

    index: Token
    size: Token
    kind: Token
    number: Token | None
    owner: Token | None
    constant: Token | None


@dataclass(frozen=True, slots=True)
class BoundLine:
    """`parameter 0: x, f32[16], 0[0:64]`, or a result."""

    number: Token
    name: Token
    shape: Token
    slice: Token


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """`edge t0 -> t1, raw 1[0:64]`."""

    src: Token
    dst: Token
    hazard: Token
    slice: Token | None


@dataclass(frozen=True, slots=True)
class ThunkLine:
    """`t0: kernel name, attributes { nested }`."""

    id: Token
    kind: Token
    name: Token
    attributes: tuple[Token, ...]
    nested: tuple[NestedLines, ...]


@dataclass(frozen=True, slots=True)
class NestedLines:
    """`body { thunks and edges }` in a loop or conditional."""

    label: Token
    attributes: tuple[Token, ...]
    thunks: tuple[ThunkLine, ...]
    edges: tuple[EdgeLine, ...]


@dataclass(slots=True)
class Text:
    """All statements of a thunk sequence, by kind, each in written order."""

    source: Source
    head: Token
    name: Token
    settings: tuple[Token, ...]
    arenas: list[tuple[Token, ...]] = field(default_factory=list)
    allocations: list[AllocationLine] = field(default_factory=list)
    parameters: list[BoundLine] = field(default_factory=list)
    results: list[BoundLine] = field(default_factory=list)
    aliases: list[Token] = field(default_factory=list)
    computations: list[Token] = field(default_factory=list)
    thunks: list[ThunkLine] = field(default_factory=list)
    edges: list[EdgeLine] = field(default_factory=list)


def span_of(source: Source, token: Token) -> Span:
    """Return where a token stands."""
    start = token.start_pos or 0
    return Span(source, start, start + len(token))
