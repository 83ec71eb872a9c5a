"""Writing results straight into the buffers of the parameters they replace, or copying them there.

A parameter and its result share a buffer, the slot. The thunk that first writes the slot has to
come behind all that read the parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from itertools import pairwise

from hlo2graph.hlo import Computation
from hlo2graph.ops import OPS
from hlo2graph.program.copies.nodes import Namer, Node, Pair, outputs
from hlo2graph.program.inplace import INPLACE_THRESHOLD, Pairs, inplace_reads
from hlo2graph.program.order import DataOrder
from hlo2graph.program.thunks import Copy, Fill, Kernel, Thunk, Value
from hlo2graph.program.uses import reads, writes

SMALL = 64 << 10
"""Bytes a thunk reads and writes that take no longer than its launch."""

_FREE = frozenset({"parameter", "constant", "broadcast", "iota", "reshape", "bitcast", "tuple"})


def place_slots(
    nodes: list[Node],
    results: tuple[Value, ...],
    pairs: tuple[Pair, ...],
    inits: Mapping[Value, Value],
    computations: Mapping[str, Computation],
    namer: Namer,
    scheduled: bool,
) -> tuple[tuple[Thunk[Value], ...], tuple[Value, ...]]:
    """Return the thunks in an order in which each pair can share a buffer, and the results.

    Where no such order is to be had, or one would hold back an expensive thunk, the result is
    copied at the end. `inits` says where each loop's result lay before.
    """
    if not pairs:
        return tuple(node.thunk for node in nodes), results
    slots = _Slots(nodes, computations, scheduled)
    found = list(results)
    for pair in pairs:
        first = results[pair.result]
        while first in inits:
            first = inits[first]
        if first == pair.param or slots.write_into(pair, first):
            continue
        if pair.must:
            copy = namer.copy(results[pair.result], pair.param.shape)
            nodes.append(Node(copy, float("inf")))
            found[pair.result] = copy.target
    return slots.thunks(), tuple(found)


class _Slots:
    """The order of a sequence's thunks, growing by what writing into slots asks for."""

    def __init__(
        self, nodes: list[Node], computations: Mapping[str, Computation], scheduled: bool
    ) -> None:
        self._nodes = nodes  # more copies may be appended; those have no followers
        self._computations = computations
        self._data = DataOrder(node.thunk for node in nodes)
        self._followers: list[list[int]] = [[] for _ in nodes]
        for at, before in enumerate(self._data.predecessors):
            for p in before:
                self._followers[p].append(at)
        if scheduled:
            for a, b in pairwise(at for at, node in enumerate(nodes) if node.is_given):
                self._followers[a].append(b)
        self._inplace: dict[int, Pairs] = {}  # of the thunks asked for so far
        self._maker = {v: at for at, node in enumerate(nodes) for v in outputs(node.thunk)}
        self._readers: dict[Value, list[int]] = {}
        for at, node in enumerate(nodes):
            for value in reads(node.thunk):
                self._readers.setdefault(value, []).append(at)

    def write_into(self, pair: Pair, value: Value) -> bool:
        """Let `value` be written where the pair's parameter lies, if that is right and pays."""
        at = self._maker[value]
        thunk = self._nodes[at].thunk
        readers = set(self._readers.get(pair.param, ()))
        if at in readers and not self._overwrites(at, pair.param, value):
            return False
        late = [r for r in readers if r != at and not self._data.precedes(r, at)]
        if not late:
            return True
        pays = value.shape.size >= INPLACE_THRESHOLD or is_cheap(thunk, self._computations)
        if not (pair.must and pays) or self._reaches(at, set(late)):
            return False
        for reader in late:
            self._followers[reader].append(at)
            node = self._nodes[reader]
            if not node.is_given:
                node.place = min(node.place, self._nodes[at].place - 0.25)
        return True

    def thunks(self) -> tuple[Thunk[Value], ...]:
        """Return the thunks in the order found, each as near to its wished place as can be."""
        followers = self._followers + [[] for _ in self._nodes[len(self._followers) :]]
        waits = [0] * len(followers)
        for after in followers:
            for at in after:
                waits[at] += 1
        ready = [(node.place, at) for at, node in enumerate(self._nodes) if not waits[at]]
        heapify(ready)
        found: list[Thunk[Value]] = []
        while ready:
            _, at = heappop(ready)
            found.append(self._nodes[at].thunk)
            for follower in followers[at]:
                waits[follower] -= 1
                if not waits[follower]:
                    heappush(ready, (self._nodes[follower].place, follower))
        assert len(found) == len(self._nodes), "an order that was found has no cycle"
        return tuple(found)

    def _overwrites(self, at: int, param: Value, value: Value) -> bool:
        """Tell whether a thunk, which reads `param`, may write `value` to the same bytes.

        Not where it reads it as two operands: each of them alone says nothing of the other.
        """
        thunk = self._nodes[at].thunk
        match thunk:
            case Kernel():
                given, made = thunk.reads, thunk.writes
            case Copy():
                given, made = (thunk.source,), (thunk.target,)
            case _:
                return False
        if at not in self._inplace:
            self._inplace[at] = inplace_reads(thunk, self._computations)
        read_as = [k for k, read in enumerate(given) if read.id == param.id]
        return len(read_as) == 1 and (read_as[0], made.index(value)) in self._inplace[at]

    def _reaches(self, start: int, goals: set[int]) -> bool:
        """Tell whether one of `goals` already comes behind `start`."""
        seen = {start}
        stack = [start]
        while stack:
            for follower in self._followers[stack.pop()]:
                if follower in goals:
                    return True
                if follower not in seen:
                    seen.add(follower)
                    stack.append(follower)
        return False


def is_cheap(thunk: Thunk[Value], computations: Mapping[str, Computation]) -> bool:
    """Tell whether `thunk` costs no more than copying what it writes, or than its launch."""
    match thunk:
        case Copy() | Fill():
            return True
        case Kernel():
            if sum(v.shape.size for v in (*reads(thunk), *writes(thunk))) <= SMALL:
                return True
            instructions = computations[thunk.computation].instructions
            return all(i.opcode in _FREE or _is_elementwise(i.opcode) for i in instructions)
        case _:
            return False


def _is_elementwise(opcode: str) -> bool:
    spec = OPS.get(opcode)
    return spec is not None and spec.elementwise
