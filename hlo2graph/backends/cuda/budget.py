"""A limit on what the instantiated graphs of a process take, over all its executables.

A graph that is instantiated takes memory of the GPU, some of it as long as it lives. Where there is
a limit, the graphs that were not launched for longest are dropped until a new one fits; each is
built again when it is launched next. A graph is dropped only while nobody calls its executable, and
once its last run has ended. Where the GPU itself has no memory left for a new graph, all others are
dropped and, if there were any, it is tried once more.

What one graph takes cannot be asked for. The driver hands memory out of blocks of 2 MB and more and
keeps that of graphs that are gone for those to come, so that the GPU's free memory falls by a whole
block or by nothing. A graph therefore counts for what many graphs of its kind took on average: so
much for each of the lanes that it has side by side, and a little for each node. `taken` is what
free memory really fell by.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from operator import index
from typing import Protocol, SupportsIndex, TypeVar
from weakref import WeakSet

from hlo2graph.errors import BackendError, InputError
from hlo2graph.options import read_size

VARIABLE = "HLO2GRAPH_GRAPH_BUDGET"
# On an H200, driver 13.0: within 21 % of what 10 to 400 graphs of one kind took in a fresh process,
# of 1 to 40 lanes, 2 to 1001 nodes, with loops and without.
LANE_BYTES = 113_000
NODE_BYTES = 2_400
NAMED = 3  # owners that an error names

T = TypeVar("T")
tick: Callable[[], int] = count(1).__next__


@dataclass(frozen=True, slots=True)
class Holder:
    """Who may drop some graphs: who launches one holds `lock`; `wait` waits for the last run.

    Callers wait for a lock that is held to drop a graph: that is short.
    """

    name: str
    lock: threading.Lock
    wait: Callable[[], None]


class Graph(Protocol):
    """A graph that can be dropped, and builds itself again when it is launched."""

    owner: str  # the name of whose it is
    holder: Holder | None  # None where it is never to be dropped
    size: int  # bytes that it counts for
    driver_bytes: int  # that free memory fell by
    used: int  # `tick` at its last launch

    def drop(self) -> None:
        """Let go what is instantiated."""
        ...


@dataclass(frozen=True, slots=True)
class Owner:
    """The instantiated graphs of executables of one name, and the bytes they count for."""

    name: str
    graphs: int
    size: int

    def __str__(self) -> str:
        return f"{self.name} {self.size:,} bytes in {self.graphs:,} graph{'s' * (self.graphs > 1)}"


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """What instantiated graphs count for: `size` bytes, of `limit` where there is one.

    `taken` is what the GPU's free memory fell by, `dropped` and `rebuilt` count graphs, all since
    the process began. `owners` begin with the largest.
    """

    limit: int | None
    size: int
    taken: int
    graphs: int
    dropped: int
    rebuilt: int
    owners: tuple[Owner, ...]

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" of {self.limit:,}"
        head = (
            f"{self.size:,} bytes{limit} in {self.graphs:,} graphs, {self.taken:,} taken from the "
            f"GPU; {self.dropped:,} dropped, {self.rebuilt:,} built again"
        )
        return "\n".join([head, *(f"  {owner}" for owner in self.owners)])


class GraphBudget:
    """The graphs of a process that are instantiated now. One at a time is made."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._graphs: WeakSet[Graph] = WeakSet()
        self._limit: int | None = None
        self._is_set = False
        self._dropped = self._rebuilt = self._taken = 0

    @property
    def limit(self) -> int | None:
        """The limit in bytes, if there is one: as it was set, or else by the environment.

        Raises:
            InputError: the environment says no size.
        """
        if not self._is_set:
            text = os.environ.get(VARIABLE, "")
            try:
                self._limit = read_size(text) if text else None
            except ValueError as error:
                raise InputError(f"{VARIABLE}: {error}") from None
            self._is_set = True
        return self._limit

    def set_limit(self, limit: int | None) -> None:
        """Set the limit, or lift it, and drop what is too much."""
        with self._lock:
            self._limit, self._is_set = limit, True
            self._make_room(0, None)

    @property
    def size(self) -> int:
        """Bytes of all graphs that are instantiated."""
        with self._lock:
            return sum(graph.size for graph in self._graphs)

    def memory(self) -> GraphMemory:
        """Return what there is now."""
        with self._lock:
            found: dict[str, list[int]] = {}
            for graph in self._graphs:
                found.setdefault(graph.owner, []).append(graph.size)
            owners = [Owner(name, len(sizes), sum(sizes)) for name, sizes in found.items()]
            owners.sort(key=lambda owner: (-owner.size, owner.name))
            return GraphMemory(
                self.limit,
                self.size,
                self._taken,
                len(self._graphs),
                self._dropped,
                self._rebuilt,
                tuple(owners),
            )

    def instantiate(self, graph: Graph, size: int, make: Callable[[], T]) -> T:
        """Return what `make` instantiates for `graph`, of so many bytes, after making room for it.

        Raises:
            BackendError: `make` raised it; where the GPU has no memory, twice, and it names who
                holds most.
        """
        from hlo2graph.backends.cuda.driver import is_out_of_memory
        from hlo2graph.backends.cuda.memory import free_bytes

        with self._lock:
            self._graphs.discard(graph)
            self._make_room(size, graph.holder)
            free = free_bytes()
            try:
                made = make()
            except BackendError as error:
                if not is_out_of_memory(error):
                    raise
                made = self._once_more(make, size, graph.holder, error)
            graph.size, graph.driver_bytes = size, max(0, free - free_bytes())
            graph.used = tick()
            self._taken += graph.driver_bytes
            self._graphs.add(graph)
            return made

    def has_room(self, size: int, holder: Holder | None) -> bool:
        """Tell whether a graph more of so many bytes fits, after dropping those of others."""
        with self._lock:
            self._make_room(size, holder)
            limit = self.limit
            return limit is None or self.size + size <= limit

    def count_rebuilt(self) -> None:
        """Count a graph that was dropped and is there again."""
        with self._lock:
            self._rebuilt += 1

    def _make_room(self, needed: int, holder: Holder | None) -> None:
        limit = self.limit
        if limit is not None:
            self._drop(lambda: self.size + needed > limit, holder)

    def _once_more(
        self, make: Callable[[], T], size: int, holder: Holder | None, full: BackendError
    ) -> T:
        """Make it after dropping all that can be; `full` says that there was no memory."""
        from hlo2graph.backends.cuda.owners import room_text

        try:
            if not self._drop(lambda: True, holder):
                raise full
            return make()
        except BackendError as error:
            owners = self.memory().owners
            held = ", ".join(map(str, owners[:NAMED])) or "none"
            raise BackendError(
                f"{error}; a graph like it takes about {size:,} bytes; {room_text()}; "
                f"graphs that are instantiated: {held}"
            ) from error

    def _drop(self, goes_on: Callable[[], bool], holder: Holder | None) -> int:
        """Drop graphs, the one first that was not launched for longest; return how many.

        Those of `holder`, who is calling, stay, and those of who is at work just now.
        """
        before = self._dropped
        for graph in sorted(self._graphs, key=lambda graph: graph.used):
            if not goes_on():
                break
            other = graph.holder
            if other is None or other is holder or not other.lock.acquire(blocking=False):
                continue
            try:
                other.wait()
                graph.drop()
                self._graphs.discard(graph)
                self._dropped += 1
            finally:
                other.lock.release()
        return self._dropped - before


def estimated_bytes(lanes: int, nodes: int) -> int:
    """Return what an instantiated graph of so many lanes and nodes takes of the GPU's memory."""
    return lanes * LANE_BYTES + nodes * NODE_BYTES


BUDGET = GraphBudget()


def set_graph_budget(limit: SupportsIndex | None) -> None:
    """Limit what the instantiated graphs of this process take on its GPUs, in bytes; None: not.

    Graphs over the limit are dropped, those first that were not launched for longest, and built
    again when they are launched: results stay the same. What runs at this moment stays, so the
    limit may be exceeded for as long. HLO2GRAPH_GRAPH_BUDGET=64MiB in the environment sets it too.

    Raises:
        InputError: it is no number of bytes.
    """
    try:
        size = None if limit is None else index(limit)
    except TypeError:
        size = -1
    if size is not None and size < 0:
        raise InputError(f"a graph budget is a number of bytes or None, not {limit!r}")
    BUDGET.set_limit(size)


def graph_memory() -> GraphMemory:
    """Return what the instantiated graphs of this process take, and whose they are."""
    return BUDGET.memory()
