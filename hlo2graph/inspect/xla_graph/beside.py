"""Whether our plan of XLA's own kernels orders two of them."""

from __future__ import annotations

from hlo2graph.program.order import PartialOrder
from hlo2graph.program.plan import Plan
from hlo2graph.program.uses import placed


class Beside:
    """The order of a plan, by the names that its thunks have in XLA's dump too."""

    def __init__(self, plan: Plan) -> None:
        self._orders: dict[str, tuple[dict[str, int], PartialOrder]] = {}
        for where, sequence in placed(plan.body):
            places = {thunk.name: at for at, thunk in enumerate(sequence.thunks)}
            sources: list[list[int]] = [[] for _ in sequence.thunks]
            for edge in sequence.edges:
                sources[edge.dst].append(edge.src)
            order = PartialOrder()
            for found in sources:
                order.join(found)
            self._orders[where] = places, order

    def orders(self, where: str, src: str, dst: str) -> bool | None:
        """Tell whether `dst` waits for `src`; None where the plan has not both."""
        places, order = self._orders.get(where, ({}, None))
        if order is None or src not in places or dst not in places:
            return None
        return order.precedes(places[src], places[dst])
