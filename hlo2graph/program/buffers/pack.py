"""Pack the arena by program order alone: the largest buffers first, each into the tightest gap.

Which orderings that asks for shows when `place` walks the program with these offsets.
"""

from __future__ import annotations

import numpy as np

from hlo2graph.program.buffers.model import Model


def pack(model: Model) -> dict[int, int]:
    """Return offsets by `Temp.order` at which buffers alive together do not overlap.

    Looks at all pairs of buffers, the inner half of that in NumPy.
    """
    first, last = _lives(model)
    by_size = sorted(model.temps, key=lambda t: (-t.size, t.order))
    begins, ends, starts, stops = (np.zeros(len(by_size), np.int64) for _ in range(4))
    offsets: dict[int, int] = {}
    for count, temp in enumerate(by_size):
        born, died = first[temp.order], last[temp.order]
        beside = np.flatnonzero((begins[:count] <= died) & (ends[:count] >= born))
        by_start = beside[np.argsort(starts[beside], kind="stable")]
        offset = _tightest(temp.size, starts[by_start].tolist(), stops[by_start].tolist())
        offsets[temp.order] = offset
        begins[count], ends[count] = born, died
        starts[count], stops[count] = offset, offset + temp.size
    return offsets


def _tightest(size: int, starts: list[int], stops: list[int]) -> int:
    """Return where the smallest gap of at least `size` bytes between these ranges starts."""
    best: tuple[int, int] | None = None
    top = 0
    for start, stop in zip(starts, stops, strict=True):
        if start - top >= size and (best is None or (start - top, top) < best):
            best = start - top, top
        top = max(top, stop)
    return best[1] if best else top


def _lives(model: Model) -> tuple[list[int], list[int]]:
    """Return the first and last moment of each buffer, on one clock for all sequences.

    A loop or conditional lasts from the first moment inside it to the last.
    """
    moments: dict[tuple[int, int], tuple[int, int]] = {}
    begun: dict[int, int] = {}
    scopes = model.uses.scopes
    for clock, (scope, at, _) in enumerate(model.uses.walk()):
        inside = [begun[c] for c in scopes[scope].children.get(at, ()) if c in begun]
        moments[scope, at] = (min(inside, default=clock), clock)
        begun.setdefault(scope, moments[scope, at][0])
    first, last = [], []
    for temp in model.temps:
        end = min(temp.last, scopes[temp.scope].end - 1)
        first.append(moments[temp.scope, temp.born][0])
        last.append(moments[temp.scope, end][1])
    return first, last
