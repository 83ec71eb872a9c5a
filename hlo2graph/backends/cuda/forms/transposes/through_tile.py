"""What every kernel is that takes a tile into shared memory, and goes on from there."""

from __future__ import annotations

from collections.abc import Callable

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.hlo import Computation


def go_through_tile(
    emit: ElementEmitter,
    computation: Computation,
    read: Callable[[], None],
    store: Callable[[], None],
) -> None:
    """Write what threads read of a computation, and behind a barrier what they store of it."""
    emit.enter(computation)
    with emit.block(""):
        read()
    emit.line("__syncthreads();")
    with emit.block(""):
        store()
    emit.leave()
