"""The copies in front of loops: which loops may not write over the value they start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hlo2graph.program.copies.nodes import Namer, Node, Pair, outputs
from hlo2graph.program.order import DataOrder
from hlo2graph.program.thunks import Value, While
from hlo2graph.program.uses import nested, reads


def place_inits(
    nodes: list[Node], results: tuple[Value, ...], pairs: tuple[Pair, ...], namer: Namer
) -> Mapping[Value, Value]:
    """Insert a copy in front of its loop for each init that the loop may not take over.

    Return where each loop's result lay before: its init, which may be such a copy. A loop takes
    over a value that a thunk of this sequence makes, that it is given once, and whose other
    readers all come first by data flow; and a parameter under the same conditions where that is
    to share its buffer with what the loop makes of it.
    """
    loops = [at for at, node in enumerate(nodes) if isinstance(node.thunk, While)]
    if not loops:
        return {}
    inits = _Inits(nodes, results, pairs)
    lay: dict[Value, Value] = {}
    for at in reversed(loops):
        loop = nodes[at].thunk
        assert isinstance(loop, While)
        captured = {v for _, inner in nested(loop) for t in inner.thunks for v in reads(t)}
        captured.update(v for _, inner in nested(loop) for v in inner.results)
        kept: dict[Value, None] = {}  # the inits, in order
        made: list[Node] = []
        for k, init in enumerate(loop.inits):
            if init in kept or init in captured or not inits.take_over(at, init, loop.results[k]):
                copy = namer.copy(init, loop.body.params[k].shape)
                made.append(Node(copy, nodes[at].place - 0.5))
                kept[copy.target] = None
            else:
                kept[init] = None
        nodes[at].thunk = replace(loop, inits=tuple(kept))
        lay.update(zip(loop.results, kept, strict=True))
        nodes[at:at] = made
    return lay


class _Inits:
    """Decides what may be taken over; loops come last one first."""

    def __init__(
        self, nodes: list[Node], results: tuple[Value, ...], pairs: tuple[Pair, ...]
    ) -> None:
        self.taken: dict[Value, Value] = {}  # an init -> the loop's result
        self._made = {value for node in nodes for value in outputs(node.thunk)}
        self._results = set(results)
        self._wanted = {pair.param: results[pair.result] for pair in pairs}
        self._order = DataOrder(node.thunk for node in nodes)
        self._readers: dict[Value, list[int]] = {}
        for at, node in enumerate(nodes):
            for value in reads(node.thunk):
                self._readers.setdefault(value, []).append(at)

    def take_over(self, at: int, init: Value, result: Value) -> bool:
        """Decide whether the loop at position `at` (before any copies) may write over `init`."""
        if init in self._results or not (init in self._made or self._is_wanted(init, result)):
            return False
        if any(u != at and not self._order.precedes(u, at) for u in self._readers[init]):
            return False
        self.taken[init] = result
        return True

    def _is_wanted(self, param: Value, result: Value) -> bool:
        """Follow later loops that take over `result` to the one that `param` is to become."""
        while result in self.taken:
            result = self.taken[result]
        return self._wanted.get(param) == result
