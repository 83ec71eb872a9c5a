"""The order that data flow alone imposes on the thunks of one sequence.

In: thunks over Values, in program order. Out: who waits for whom, and the transitive closure of
that. Positions in program order are a topological order: a predecessor has the
smaller position. Thunks are only ever appended, and edges only enter the thunk appended last, so
that buffer assignment can add an edge where it has just put a value and read the result at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hlo2graph.program.thunks import Collective, Conditional, Kernel, R, Thunk, Value, While
from hlo2graph.program.uses import nested, reads, writes


class PartialOrder:
    """A growing directed acyclic graph and its closure.

    Node t waits for all nodes before `_whole[t]`, and for `_whole[t]` + i where bit i of `_more[t]`
    is set. In deep programs nearly all is in the first number; at worst the bits take n*n/16 bytes
    for n nodes, 0.6 GB at 100,000. `depth[t]` is the number of nodes on the longest path to t.
    """

    def __init__(self) -> None:
        self.depth: list[int] = []
        self.predecessors: list[tuple[int, ...]] = []
        self._whole: list[int] = []
        self._more: list[int] = []

    def __len__(self) -> int:
        return len(self.depth)

    def join(self, predecessors: Iterable[int]) -> tuple[int, ...]:
        """Append a node and return those of `predecessors` that it needs an edge from.

        The others precede one of those returned, so what comes back is transitively reduced.
        """
        at, kept = len(self), []
        self._whole.append(0)
        self._more.append(0)
        for p in sorted(set(predecessors), reverse=True):
            if not self.precedes(p, at):
                kept.append(p)
                self._follow(at, p)
        self.depth.append(1 + max((self.depth[p] for p in kept), default=0))
        self.predecessors.append(tuple(kept))
        return tuple(kept)

    def add_edge(self, src: int, dst: int) -> None:
        """Let `dst`, the node appended last, wait for `src` too."""
        assert src < dst == len(self) - 1, "an edge enters the node appended last"
        if self.precedes(src, dst):
            return
        self._follow(dst, src)
        self.depth[dst] = max(self.depth[dst], self.depth[src] + 1)
        self.predecessors[dst] = (*self.predecessors[dst], src)

    def precedes(self, a: int, b: int) -> bool:
        """Node `b` waits for node `a`, directly or not."""
        beyond = a - self._whole[b]
        return beyond < 0 or bool(self._more[b] >> beyond & 1)

    def ancestors(self, node: int) -> int:
        """Return all that `node` waits for, a bit each."""
        whole = self._whole[node]
        return self._more[node] << whole | (1 << whole) - 1

    def _follow(self, node: int, other: int) -> None:
        """Let `node` wait for `other`, for which it does not yet, and for all that precedes it."""
        whole, more = self._whole[node], self._more[node]
        apart = self._whole[other] - whole
        if apart > 0:
            whole += apart
            more = more >> apart | self._more[other]
        else:
            more |= self._more[other] >> -apart
        more |= 1 << other - whole
        if more & 1:
            ones = (~more & more + 1).bit_length() - 1
            whole += ones
            more >>= ones
        self._whole[node], self._more[node] = whole, more


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
