"""Which values or slices a thunk reads and writes, nested sequences included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from hlo2graph.program.thunks import (
    Collective,
    Computing,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Program,
    R,
    Sequence,
    Thunk,
    While,
)


def reads(thunk: Thunk[R]) -> tuple[R, ...]:
    """Return what `thunk` reads, each once.

    A loop or conditional reads the union of what its nested sequences read, temporaries too.
    """
    match thunk:
        case Kernel() | Library() | Collective():
            found = thunk.reads
        case Copy():
            found = (thunk.source,)
        case Fill():
            found = ()
        case While():
            nested = (*reads_of(thunk.condition), *reads_of(thunk.body))
            found = (*thunk.inits, *nested)
        case Conditional():
            found = (thunk.selector, *(r for b in thunk.branches for r in reads_of(b)))
        case _:
            assert_never(thunk)
    return tuple(dict.fromkeys(found))


def writes(thunk: Thunk[R]) -> tuple[R, ...]:
    """Return what `thunk` writes, each once; see `reads`."""
    match thunk:
        case Kernel() | Collective():
            found = thunk.writes
        case Library():
            found = (*thunk.writes, *thunk.workspace)
        case Copy() | Fill():
            found = (thunk.target,)
        case While():
            nested = (*_writes_of(thunk.condition), *_writes_of(thunk.body))
            found = (*thunk.results, *nested)
        case Conditional():
            found = (*thunk.results, *(w for b in thunk.branches for w in _writes_of(b)))
        case _:
            assert_never(thunk)
    return tuple(dict.fromkeys(found))


def nested(thunk: Thunk[R]) -> tuple[tuple[str, Sequence[R]], ...]:
    """Return the sequences inside `thunk` with their labels: condition, body, branch_N."""
    match thunk:
        case While():
            return (("condition", thunk.condition), ("body", thunk.body))
        case Conditional():
            return tuple((f"branch_{i}", b) for i, b in enumerate(thunk.branches))
        case _:
            return ()


def placed(sequence: Sequence[R], where: str = "") -> Iterator[tuple[str, Sequence[R]]]:
    """Yield a sequence, and those nested in it, each with its place: `loop/body/inner/branch_0`."""
    yield where, sequence
    for thunk in sequence.thunks:
        home = f"{where}/{thunk.name}" if where else thunk.name
        for label, inner in nested(thunk):
            yield from placed(inner, f"{home}/{label}")


def walk(sequence: Sequence[R]) -> Iterator[Thunk[R]]:
    """Yield every thunk of a sequence, each followed by those nested in it."""
    for thunk in sequence.thunks:
        yield thunk
        for _, inner in nested(thunk):
            yield from walk(inner)


def computing(sequence: Sequence[R]) -> Iterator[Computing[R]]:
    """Yield the thunks that run a computation, those of nested sequences too, in order."""
    for thunk in walk(sequence):
        if isinstance(thunk, Kernel | Library | Collective):
            yield thunk


def reads_of(sequence: Sequence[R]) -> tuple[R, ...]:
    """Return all that a sequence reads; its results are read by what is around it."""
    return (*(r for t in sequence.thunks for r in reads(t)), *sequence.results)


def _writes_of(sequence: Sequence[R]) -> tuple[R, ...]:
    return tuple(w for t in sequence.thunks for w in writes(t))


def first_free_id(program: Program) -> int:
    """Return an id that no value of `program` has, nor any larger one."""
    body = program.body
    inner = (sequence for thunk in walk(body) for _, sequence in nested(thunk))
    held = [*body.params, *reads_of(body), *_writes_of(body)]
    held += [param for sequence in inner for param in sequence.params]
    held += [value for value, _ in program.constants]
    return 1 + max((value.id for value in held), default=-1)
