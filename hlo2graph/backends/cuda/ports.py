"""Ports: the allocations of a plan whose addresses a caller may bring at each call.

A port holds one parameter leaf, one result leaf, or a donated parameter and the result that takes
its place. A PLACEMENT is the addresses of all ports at one call, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hlo2graph.backends.cuda.source import ACCESS_BYTES
from hlo2graph.backends.cuda.steps import BranchStep, LibraryStep, LoopStep, Step, StepSequence
from hlo2graph.program.plan import ALIGNMENT, AllocationKind, Bound, Plan

Placement: TypeAlias = tuple[int, ...]

BROUGHT = (AllocationKind.PARAMETER, AllocationKind.LIVE_OUT)


@dataclass(frozen=True, slots=True)
class Port:
    """One of them. `alignment` is what kernels and libraries take its address for, in bytes."""

    allocation: int
    size: int
    name: str
    alignment: int
    is_written: bool
    input: int | None  # position of the parameter leaf in it
    output: int | None  # position of the result leaf


def ports_of(plan: Plan, steps: StepSequence) -> tuple[Port, ...]:
    """Return the ports of a plan that runs as `steps`.

    An allocation that holds several leaves, or parts of some, as hand-written plans may have, is
    none; nor is one of no bytes, nor a parameter that is also a result as it is.
    """
    by_library = {
        part.allocation
        for step in _walk(steps)
        if isinstance(step, LibraryStep)
        for part in step.slices
    }
    written = {plan.inputs[k].slice.allocation for k in plan.donated}
    inputs, outputs = _by_allocation(plan.inputs), _by_allocation(plan.outputs)
    found = []
    for index, allocation in enumerate(plan.allocations):
        reads, results = inputs.get(index, []), outputs.get(index, [])
        leaves = [plan.inputs[k] for k in reads] + [plan.outputs[k] for k in results]
        is_brought = allocation.kind in BROUGHT and allocation.size > 0
        is_whole = all(leaf.slice.size == allocation.size for leaf in leaves)
        is_result_as_it_is = bool(reads and results) and index not in written
        if not is_brought or not is_whole or is_result_as_it_is:
            continue
        if not leaves or max(len(reads), len(results)) > 1:
            continue
        alignment = ALIGNMENT if index in by_library else ACCESS_BYTES
        is_written = bool(results) or index in written
        read, result = (next(iter(found), None) for found in (reads, results))
        name = leaves[0].name
        found.append(Port(index, allocation.size, name, alignment, is_written, read, result))
    return tuple(found)


def _by_allocation(leaves: Sequence[Bound]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for position, leaf in enumerate(leaves):
        found.setdefault(leaf.slice.allocation, []).append(position)
    return found


def _walk(sequence: StepSequence) -> Iterator[Step]:
    for step in sequence.steps:
        yield step
        match step:
            case LoopStep():
                inner: tuple[StepSequence, ...] = (step.condition, step.body)
            case BranchStep():
                inner = step.branches
            case _:
                inner = ()
        for nested in inner:
            yield from _walk(nested)
