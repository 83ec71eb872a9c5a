"""Program in, Program out: every value that must live at two places has a Copy.

Afterwards each of these groups can be one buffer, in the program order that comes out:

- a loop leaf's init, body parameter, body result, condition parameter and result;
- a conditional's result and the same result of each branch;
- a result of the module and the parameter that it must alias.

And no result of the module is a parameter (but its own alias), a constant, or given twice. A copy
is left out where data flow, or an order that costs little, keeps all readers of the old bytes in
front of the thunk that writes the new ones; thunks move behind such readers then, except in a
scheduled module, whose order is kept. A may-alias that is not free adds neither copies nor order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hlo2graph.hlo import Computation, Shape
from hlo2graph.program.copies.inits import place_inits
from hlo2graph.program.copies.nodes import Namer, Node, Pair, outputs
from hlo2graph.program.copies.slots import place_slots
from hlo2graph.program.thunks import (
    Conditional,
    Program,
    Sequence,
    Thunk,
    Value,
    While,
)


def place_copies(program: Program) -> Program:
    """Give `program` the copies without which sharing buffers would go wrong."""
    placer = _Placer(program.computations, Namer(program), program.is_scheduled)
    aliased = {alias.output: alias for alias in program.aliases}
    pairs = tuple(
        Pair(program.body.params[alias.input], output, must=alias.must)
        for output, alias in sorted(aliased.items())
    )
    shapes = tuple(port.shape for port in program.outputs)
    return replace(program, body=placer.sequence(program.body, pairs, shapes))


@dataclass(frozen=True, slots=True)
class _Placer:
    computations: Mapping[str, Computation]
    namer: Namer
    scheduled: bool

    def sequence(
        self, held: Sequence[Value], pairs: tuple[Pair, ...], shapes: tuple[Shape, ...]
    ) -> Sequence[Value]:
        """Place copies in a sequence whose results need buffers of their own.

        `pairs` are the parameters that share a buffer with a result, `shapes` those of results.
        """
        nodes = self._nodes(held)
        results = self._own_results(nodes, held.results, pairs, shapes)
        inits = place_inits(nodes, results, pairs, self.namer)
        thunks, results = place_slots(
            nodes, results, pairs, inits, self.computations, self.namer, self.scheduled
        )
        return replace(held, thunks=thunks, results=results)

    def _condition(self, held: Sequence[Value]) -> Sequence[Value]:
        """Place copies in a loop's condition, whose result is only looked at."""
        nodes = self._nodes(held)
        place_inits(nodes, held.results, (), self.namer)
        return replace(held, thunks=tuple(node.thunk for node in nodes))

    def _nodes(self, held: Sequence[Value]) -> list[Node]:
        return [Node(self._thunk(t), float(at)) for at, t in enumerate(held.thunks)]

    def _thunk(self, thunk: Thunk[Value]) -> Thunk[Value]:
        """Place copies in what is nested in `thunk`."""
        match thunk:
            case While():
                pairs = tuple(Pair(param, k) for k, param in enumerate(thunk.body.params))
                shapes = tuple(param.shape for param in thunk.body.params)
                return replace(
                    thunk,
                    condition=self._condition(thunk.condition),
                    body=self.sequence(thunk.body, pairs, shapes),
                )
            case Conditional():
                shapes = tuple(result.shape for result in thunk.results)
                return replace(
                    thunk, branches=tuple(self.sequence(b, (), shapes) for b in thunk.branches)
                )
            case _:
                return thunk

    def _own_results(
        self,
        nodes: list[Node],
        results: tuple[Value, ...],
        pairs: tuple[Pair, ...],
        shapes: tuple[Shape, ...],
    ) -> tuple[Value, ...]:
        """Append a copy for each result that is not made here, or is another result already."""
        made = {value.id for node in nodes for value in outputs(node.thunk)}
        own = {pair.result: pair.param.id for pair in pairs}
        found: list[Value] = []
        held: set[Value] = set()
        for k, (value, shape) in enumerate(zip(results, shapes, strict=True)):
            if own.get(k) != value.id and (value.id not in made or value in held):
                copy = self.namer.copy(value, shape)
                nodes.append(Node(copy, float("inf")))
                value = copy.target
            found.append(value)
            held.add(value)
        return tuple(found)
