"""A computation of several rounds of a loop, one behind the other, with barriers between them.

Without a barrier fusion computes again, in a later round's kernel, what an earlier round's kernel
has made, and the state cannot be written in its own place any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo2graph.hlo import Attribute, Computation, Instruction


def several_rounds(body: Computation, called: Sequence[str], every: int | None = 1) -> Computation:
    """Return a computation of the state of `body` that calls `called` one after the other.

    There is a barrier after `every` so many of them, but the last; None is for none.
    """
    shape, span = body.result.shape, body.span
    written = [replace(body.parameters[0], name="state")]

    def add(name: str, opcode: str, attrs: dict[str, Attribute]) -> None:
        written.append(Instruction(name, opcode, shape, (written[-1].name,), attrs, span=span))

    for number, name in enumerate(called):
        if every and number and number % every == 0:
            add(f"end.{number}", "opt-barrier", {})
        add(f"round.{number}", "call", {"to_apply": name})
    return Computation(body.name, tuple(written), written[-1].name, span=span)
