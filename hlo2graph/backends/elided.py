"""Values for constants that the text elided as `constant({...})`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from hlo2graph.backends.randoms import random_array
from hlo2graph.errors import InputError, Note, Span, UnsupportedError
from hlo2graph.hlo import AnyLiteral, Computation, Instruction, Literal, Module, Shape
from hlo2graph.ops.spec import Array
from hlo2graph.options import chosen
from hlo2graph.program.plan import Allocation, Plan

Values: TypeAlias = Callable[[Literal], Array]
NAMED = 8  # elided constants that the error names; it counts the rest


def fill_elided(plan: Plan, how: str | None) -> Plan:
    """Return the plan with every elided constant given values.

    `how` is "zeros" or "random:SEED". Where it is None and a constant is elided, or it is neither,
    raise UnsupportedError or InputError.
    """
    values = None if how is None else _values(how)
    if not (found := list(_elided(plan))):
        return plan
    if values is None:
        raise _refusal(found)
    return replace(
        plan,
        allocations=tuple(_filled_allocation(a, values) for a in plan.allocations),
        computations=_filled_computations(plan.computations, values),
    )


def fill_module(module: Module, how: str) -> Module:
    """Return the module with the values that `fill_elided` gives to any plan made of it."""
    return replace(module, computations=_filled_computations(module.computations, _values(how)))


def _values(how: str) -> Values:
    if how == "zeros":
        return lambda literal: np.zeros(literal.shape.dims, literal.shape.dtype.numpy)
    kind, _, seed = how.partition(":")
    if kind != "random" or not (seed.isascii() and seed.isdigit()):
        raise InputError(f"elided constants can be zeros or random:SEED, not {how!r}")
    # By place, not in turn: a plan may hold a constant twice or not at all, in any order.
    return lambda literal: random_array(
        literal.shape, np.random.default_rng((int(seed), literal.at))
    )


def _elided(plan: Plan) -> Iterator[tuple[str, Shape, Span | None]]:
    """Yield name, shape and place of each elided constant."""
    spans = (thunk.span for thunk in plan.body.thunks if thunk.span is not None)
    source = next((span.source for span in spans), None)
    for allocation in plan.allocations:
        literal = allocation.literal
        if literal is not None and literal.is_elided:
            end = literal.at + len("{...}")
            place = None if source is None else Span(source, literal.at, end)
            yield allocation.owner, literal.shape, place
    for computation in plan.computations.values():
        for instr in computation.instructions:
            for literal in _literals(instr.payload):
                if literal.is_elided:
                    yield instr.name, literal.shape, instr.span


def _literals(payload: int | AnyLiteral | None) -> Iterator[Literal]:
    match payload:
        case Literal():
            yield payload
        case tuple():
            for part in payload:
                yield from _literals(part)
        case _:
            pass


def _refusal(found: list[tuple[str, Shape, Span | None]]) -> UnsupportedError:
    first, shape, _ = found[0]
    count = len(found)
    what = (
        f"the text elides the value of constant {first} ({shape.without_layout_text()})"
        if count == 1
        else f"the text elides the values of {count} constants, the first is {first} "
        f"({shape.without_layout_text()})"
    )
    notes = [
        Note(f"{name} is {held.without_layout_text()}", span) for name, held, span in found[1:NAMED]
    ]
    if count > NAMED:
        notes.append(Note(f"and {count - NAMED} more"))
    notes.append(
        Note(
            'lowered.as_text("hlo") has them, and so have dumps with XLA_FLAGS='
            "--xla_dump_large_constants; compiled.as_text() has none that is large"
        )
    )
    notes.append(Note(f"to run without them: {chosen('elided', 'zeros')}, or random:SEED"))
    return UnsupportedError(f"{what}; it cannot be run", found[0][2], tuple(notes))


def _filled_allocation(allocation: Allocation, values: Values) -> Allocation:
    if allocation.literal is None or not allocation.literal.is_elided:
        return allocation
    return replace(allocation, literal=_filled_array(allocation.literal, values))


def _filled_computations(
    computations: Mapping[str, Computation], values: Values
) -> dict[str, Computation]:
    return {name: _filled_computation(c, values) for name, c in computations.items()}


def _filled_computation(computation: Computation, values: Values) -> Computation:
    if not any(part.is_elided for i in computation.instructions for part in _literals(i.payload)):
        return computation
    filled = tuple(_filled_instruction(i, values) for i in computation.instructions)
    return replace(computation, instructions=filled)


def _filled_instruction(instr: Instruction, values: Values) -> Instruction:
    if isinstance(instr.payload, Literal | tuple):
        return replace(instr, payload=_filled_literal(instr.payload, values))
    return instr


def _filled_literal(literal: AnyLiteral, values: Values) -> AnyLiteral:
    if isinstance(literal, tuple):
        return tuple(_filled_literal(part, values) for part in literal)
    return _filled_array(literal, values)


def _filled_array(literal: Literal, values: Values) -> Literal:
    return Literal(literal.shape, values(literal)) if literal.is_elided else literal
