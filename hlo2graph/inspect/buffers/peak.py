"""When the most bytes of temporaries hold something that is still needed, and who holds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hlo2graph.inspect.buffers.lives import Life, Lives
from hlo2graph.program.plan import AllocationKind, Plan
from hlo2graph.program.thunks import Slice


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes live at once: while thunk `id`, called `name`, runs in the sequence `where`.

    `held` are the values that hold them, the largest first; id is None where there is nothing.
    """

    bytes: int
    id: int | None
    name: str
    where: str
    held: tuple[Life, ...]


def find_peak(plan: Plan, lives: Lives) -> Peak:
    """Return the first of the thunks at which most is live, in program order."""
    temps = {i for i, a in enumerate(plan.allocations) if a.kind is AllocationKind.TEMP}
    walk = _Walk(temps, [life.slice for part in lives.walk() for life in part.values])
    walk.through(lives, ())
    if not walk.at:
        return Peak(0, None, "", "", ())
    part, id = walk.at[-1]
    held = {life.slice: life for p, at in walk.at for life in p.values if _is_live(life, at)}
    found = sorted(
        (life for life in held.values() if life.slice.allocation in temps),
        key=lambda life: (-life.slice.size, life.slice.offset),
    )
    thunk = part.numbered.sequence.thunks[id - part.numbered.first]
    return Peak(walk.most, id, thunk.name, part.where, tuple(found))


def _is_live(life: Life, at: int) -> bool:
    born = -1 if life.born is None else life.born
    if born > at:
        return False
    return life.kept or born == at or (life.last is not None and life.last >= at)


class _Walk:
    """Goes through sequences with the set of live bytes, each counted once."""

    def __init__(self, temps: set[int], slices: Iterable[Slice]) -> None:
        self.most = 0
        self.at: tuple[tuple[Lives, int], ...] = ()
        self._temps, self._bytes = temps, 0
        marks: defaultdict[int, set[int]] = defaultdict(set)
        for held in slices:
            marks[held.allocation] |= {held.offset, held.end}
        self._marks = {a: np.array(sorted(m)) for a, m in marks.items() if a in temps}
        self._uses = {a: np.zeros(len(m), np.int64) for a, m in self._marks.items()}

    def through(self, lives: Lives, above: tuple[tuple[Lives, int], ...]) -> None:
        """Take the live bytes from before the sequence's first thunk to behind its last."""
        first, end = lives.numbered.first, len(lives.numbered.sequence.thunks)
        born: defaultdict[int, list[Slice]] = defaultdict(list)
        dead: defaultdict[int, list[Slice]] = defaultdict(list)
        for life in lives.values:
            start = first if life.born is None else life.born
            last = max(start, life.last or start)
            born[start].append(life.slice)
            dead[first + end if life.kept else last].append(life.slice)
        inside: defaultdict[int, list[Lives]] = defaultdict(list)
        for id, inner in lives.inside:
            inside[id].append(inner)
        for id in range(first, first + end):
            self._count(born[id], 1)
            here = (*above, (lives, id))
            if self._bytes > self.most:
                self.most, self.at = self._bytes, here
            for inner in inside[id]:
                self.through(inner, here)
            self._count(dead[id], -1)
        self._count(dead[first + end], -1)

    def _count(self, slices: Iterable[Slice], step: int) -> None:
        for held in slices:
            if held.allocation not in self._temps or not held.size:
                continue
            marks, uses = self._marks[held.allocation], self._uses[held.allocation]
            first, last = np.searchsorted(marks, (held.offset, held.end))
            part = uses[first:last]
            part += step
            turned = part == (1 if step > 0 else 0)
            sizes = np.diff(marks[first : last + 1])
            self._bytes += step * int(sizes[turned].sum())
