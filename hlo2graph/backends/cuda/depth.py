"""How large a kernel may grow, and how deep the walk that writes it may go."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import Computation

MOST_LINES = 100_000  # of a kernel; what grows past them recomputes elements without bound
CALLS_EACH = 10


@contextmanager
def deep_walks(computation: Computation, computations: Mapping[str, Computation]) -> Iterator[None]:
    """Let walks go as deep as a computation is long, with what it calls.

    Where an index changes on the way, rules call each other, about ten Python calls an instruction.
    """
    held = sys.getrecursionlimit()
    sys.setrecursionlimit(max(held, 1000 + CALLS_EACH * _length(computation, computations)))
    try:
        yield
    except RecursionError:
        raise UnsupportedError(
            f"{computation.name} nests more than {MOST_LINES} instructions",
            computation.result.span or computation.span,
        ) from None
    finally:
        sys.setrecursionlimit(held)


def _length(computation: Computation, computations: Mapping[str, Computation]) -> int:
    """Count instructions, those of computations once a call; what is past MOST_LINES is many."""
    waiting, found = [computation], 0
    while waiting and found <= MOST_LINES:
        here = waiting.pop()
        found += len(here.instructions)
        waiting += [computations[name] for i in here.instructions for name in i.called()]
    return found
