"""Results that live where a parameter was, as the module's `input_output_alias` asks.

`place_copies` has made every must-alias possible. A may-alias is honoured for free where data flow
orders all readers of the parameter before the result is written; else only if all that the program
gives up is more than MUCH_GIVEN_UP bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.hlo.aliases import MUCH_GIVEN_UP
from hlo2graph.program.buffers.classes import Buffer, Buffers
from hlo2graph.program.buffers.lifetimes import Handover, Lifetimes
from hlo2graph.program.order import PartialOrder
from hlo2graph.program.plan import AllocationKind
from hlo2graph.program.thunks import Alias, Program


class Donor:
    """Honours aliases one by one; `lines` is the report.

    added: what then has to wait for which others. labelled: values for which it does so only to
    save memory, a must-alias being part of the program.
    """

    def __init__(
        self,
        program: Program,
        buffers: Buffers,
        lifetimes: Lifetimes,
        orders: Sequence[PartialOrder],
    ) -> None:
        self.added: set[Handover] = set()
        self.labelled: set[int] = set()
        self.lines: list[str] = []
        self._program = program
        self._buffers = buffers
        self._lifetimes = lifetimes
        self._orders = orders
        given_up = sum(program.outputs[a.output].shape.size for a in program.aliases)
        self._may_wait = given_up > MUCH_GIVEN_UP

    def run(self) -> None:
        """Put results where parameters were."""
        body = self._program.body
        for alias in self._program.aliases:
            parameter, result = body.params[alias.input].id, body.results[alias.output].id
            old, new = self._buffers.of[parameter], self._buffers.of[result]
            why_not = None if old is new else self._why_not(old, new, alias.must)
            if why_not is None:
                self._buffers.merge(parameter, result)
            self._report(alias, why_not)

    def _report(self, alias: Alias, why_not: str | None) -> None:
        bond = "must" if alias.must else "may"
        output = self._program.outputs[alias.output].name
        source = self._program.inputs[alias.input].name
        verdict = "honoured" if why_not is None else f"not honoured: {why_not}"
        assert why_not is None or not alias.must, f"must-alias of {output} and {source}: {why_not}"
        self.lines.append(f"result {output} in parameter {source}, {bond}: {verdict}")

    def _why_not(self, old: Buffer, new: Buffer, must: bool) -> str | None:
        if old.size != new.size:
            return f"{old.size} bytes are not {new.size}"
        if old.donated or old.kind is not AllocationKind.PARAMETER:
            return "the parameter is given to another result"
        if new.kind is not AllocationKind.LIVE_OUT:
            return "the result lives in another parameter"
        missing: set[Handover] = set()
        waiting: set[int] = set()
        for a in old.members:
            for b in new.members:
                found = self._lifetimes.ends_before(a, b)
                if found is None:
                    return "the parameter is still read when the result is written"
                late = {h for h in found if not self._ordered(h)}
                missing |= late
                waiting |= {b} if late else set()
        if missing and not must and not self._may_wait:
            return "the result would wait for other readers of the parameter"
        self.added |= missing
        self.labelled |= set() if must else waiting
        return None

    def _ordered(self, handover: Handover) -> bool:
        return self._orders[handover.scope].precedes(handover.earlier, handover.later)
