"""A computation of several rounds of a loop, one behind the other, with barriers between them.

Without a barrier fusion computes again, in a later round's kernel, what an earlier round's kernel
has made, and the state cannot be written in its own place any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlo2graph.hlo import AnyShape, Attribute, Computation, Instruction, TupleShape


def several_rounds(
    body: Computation,
    called: Sequence[str],
    every: int | None = 1,
    beside: frozenset[int] = frozenset(),
) -> Computation:
    """Return a computation of the state of `body` that calls `called` one after the other.

    There is a barrier after `every` so many of them, but the last; None is for none. The elements
    `beside` of the state go around the barriers.
    """
    shape, span = body.result.shape, body.span
    written = [replace(body.parameters[0], name="state")]

    def add(
        name: str, opcode: str, shape: AnyShape, operands: Sequence[str], **attrs: Attribute
    ) -> str:
        written.append(Instruction(name, opcode, shape, tuple(operands), attrs, span=span))
        return name

    for number, name in enumerate(called):
        state = written[-1].name
        if every and number and number % every == 0:
            end = add(f"end.{number}", "opt-barrier", shape, (state,))
            if beside:
                assert isinstance(shape, TupleShape)
                parts = [
                    add(
                        *(f"end.{number}.{k}", "get-tuple-element", part),
                        (state if k in beside else end,),
                        index=k,
                    )
                    for k, part in enumerate(shape.parts)
                ]
                end = add(f"ended.{number}", "tuple", shape, parts)
            state = end
        add(f"round.{number}", "call", shape, (state,), to_apply=name)
    return Computation(body.name, tuple(written), written[-1].name, span=span)
