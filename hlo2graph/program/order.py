"""The order that data flow alone imposes on the thunks of one sequence.

In: thunks over Values, in program order. Out: who waits for whom, and the transitive closure of
that as bit sets. Positions in program order are a topological order: a predecessor has the
smaller position. Thunks are only ever appended, and edges only enter the thunk appended last, so
that buffer assignment can add an edge where it has just put a value and read the result at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hlo2graph.program.thunks import Collective, Conditional, Kernel, R, Thunk, Value, While
from hlo2graph.program.uses import nested, reads, writes


class PartialOrder:
    """A growing directed acyclic graph and its closure.

    `ancestors[t]` has bit p set where p precedes t: n*n/8 bytes at most for n nodes, 0.6 GB at
    100,000 nodes that form a chain. `depth[t]` is the number of nodes on the longest path to t.
    """

    def __init__(self) -> None:
        self.ancestors: list[int] = []
        self.depth: list[int] = []
        self.predecessors: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self.ancestors)

    def join(self, predecessors: Iterable[int]) -> tuple[int, ...]:
        """Append a node and return those of `predecessors` that it needs an edge from.

        The others precede one of those returned, so what comes back is transitively reduced.
        """
        row, kept = 0, []
        for p in sorted(set(predecessors), reverse=True):
            if not row >> p & 1:
                kept.append(p)
                row |= self.ancestors[p] | 1 << p
        self.ancestors.append(row)
        self.depth.append(1 + max((self.depth[p] for p in kept), default=0))
        self.predecessors.append(tuple(kept))
        return tuple(kept)

    def add_edge(self, src: int, dst: int) -> None:
        """Let `dst`, the node appended last, wait for `src` too."""
        assert src < dst == len(self) - 1, "an edge enters the node appended last"
        if self.precedes(src, dst):
            return
        self.ancestors[dst] |= self.ancestors[src] | 1 << src
        self.depth[dst] = max(self.depth[dst], self.depth[src] + 1)
        self.predecessors[dst] = (*self.predecessors[dst], src)

    def precedes(self, a: int, b: int) -> bool:
        """Node `b` waits for node `a`, directly or not."""
        return bool(self.ancestors[b] >> a & 1)


class DataOrder(PartialOrder):
    """The order of `thunks` by their Values, control-predecessors and effects.

    `key` says which values are one buffer from the outset (loop state, a branch's result); by
    default none are, and a Value being written once, only reads after writes order anything.
    """

    def __init__(
        self, thunks: Iterable[Thunk[Value]] = (), key: Callable[[int], int] = lambda v: v
    ) -> None:
        super().__init__()
        self._key = key
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._outside = OutsideOrder()
        for thunk in thunks:
            self.append(thunk)

    def append(self, thunk: Thunk[Value]) -> tuple[int, ...]:
        """Append `thunk`; return the positions it needs an edge from."""
        at = len(self)
        found: set[int] = set(self._outside.append(thunk))
        written = {self._key(v.id) for v in writes(thunk)}
        for buffer in {self._key(v.id) for v in reads(thunk)}:
            if (writer := self._writer.get(buffer)) is not None:
                found.add(writer)
            if buffer not in written:
                self._readers.setdefault(buffer, []).append(at)
        for buffer in written:
            found.update(self._readers.pop(buffer, ()))
            if (writer := self._writer.get(buffer)) is not None:
                found.add(writer)
            self._writer[buffer] = at
        return self.join(found)


class OutsideOrder:
    """The order that does not come from bytes: control-predecessors, and effects in a chain."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._effect: int | None = None

    def append(self, thunk: Thunk[R]) -> Mapping[int, bool]:
        """Return what `thunk` must follow; True where as a control-predecessor."""
        at = len(self._names)
        found: dict[int, bool] = {}
        if has_effect(thunk):
            if self._effect is not None:
                found[self._effect] = False
            self._effect = at
        for name in thunk.after:
            assert name in self._names, f"{thunk.name} comes before its control-predecessor {name}"
            found[self._names[name]] = True
        assert thunk.name not in self._names, f"two thunks of one sequence are named {thunk.name}"
        self._names[thunk.name] = at
        return found


def has_effect(thunk: Thunk[R]) -> bool:
    """Something in `thunk` has a side effect, so that it keeps its place among all that have."""
    match thunk:
        case Kernel():
            return thunk.effect
        case Collective():
            return True
        case While() | Conditional():
            return any(has_effect(t) for _, inner in nested(thunk) for t in inner.thunks)
        case _:
            return False
