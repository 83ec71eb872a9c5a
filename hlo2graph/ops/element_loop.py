"""Loops in which each element goes its own way: a thread can take one through all rounds.

The state is of arrays of the same dimensions, and of scalars, which alone decide when it ends. Or
it goes on for as long as any element wants to, and those that don't stay as they are: so JAX maps
a loop over arrays. A thread then ends when its own element does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hlo2graph.hlo import AnyShape, Computation, Instruction, Literal, Shape, TupleShape
from hlo2graph.ops import OPS
from hlo2graph.ops.expect import integers
from hlo2graph.ops.scalar_region import binary_reducer

_STRUCTURE = frozenset({"copy", "get-tuple-element", "parameter", "tuple"})
_CALLS = frozenset({"call", "fusion"})


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A computation that is a loop, by the instruction's name; `results` are elements of it."""

    loop: str
    results: tuple[int, ...]


def element_loop_of(computation: Computation) -> ElementLoop | None:
    """Return the loop that `computation` is, if it is nothing else."""
    root = computation.result
    parts = [computation[o] for o in root.operands] if root.opcode == "tuple" else [root]
    if not parts or any(part.opcode != "get-tuple-element" for part in parts):
        return None
    loops = {part.operands[0] for part in parts}
    loop = computation[loops.pop()]
    if loops or loop.opcode != "while" or computation[loop.operands[0]].opcode != "tuple":
        return None
    numbers = (part.attrs["index"] for part in parts)
    return ElementLoop(loop.name, tuple(n for n in numbers if isinstance(n, int)))


def is_per_element(loop: Instruction, computations: Mapping[str, Computation]) -> bool:
    """Tell whether an element of `loop`'s state has to do with those at its index, and scalars."""
    parts = loop.shape.parts if isinstance(loop.shape, TupleShape) else ()
    dims = {part.dims for part in parts if isinstance(part, Shape) and part.dims}
    if not parts or len(dims) > 1:
        return False
    condition, body = (computations[str(loop.attrs[key])] for key in ("condition", "body"))
    vote = vote_of(condition, computations)
    if vote is not None:
        if not _stays(body, condition, vote):
            return False
        asked = (i for i in condition.instructions if i is not condition.result)
        condition = replace(condition, instructions=tuple(asked), root=vote)
    return all(_is_each_pointwise(c, dims | {()}, computations) for c in (condition, body))


def vote_of(condition: Computation, computations: Mapping[str, Computation]) -> str | None:
    """Return what tells for each element whether a loop goes on for it, where any may tell."""
    root = condition.result
    if root.opcode != "reduce" or len(root.operands) != 2:
        return None
    votes, init = (condition[name] for name in root.operands)
    is_any = binary_reducer(computations, str(root.attrs["to_apply"])) == "or"
    is_none = init.opcode == "constant" and not np.asarray(_array(init)).any()
    is_all = isinstance(votes.shape, Shape) and set(integers(root, "dimensions")) == set(
        range(votes.shape.rank)
    )
    return votes.name if is_any and is_none and is_all else None


def _array(constant: Instruction) -> object:
    return constant.payload.array if isinstance(constant.payload, Literal) else True


def _stays(body: Computation, condition: Computation, vote: str) -> bool:
    """Tell whether a round leaves elements as they are for which the loop does not go on."""
    root, [given] = body.result, body.parameters
    if root.opcode != "tuple":
        return False
    for number, name in enumerate(root.operands):
        instr = body[name]
        old = instr if instr.opcode != "select" else body[instr.operands[2]]
        if old.operands != (given.name,) or old.attrs.get("index") != number:
            return False
        if old is not instr and not _are_same(body, instr.operands[0], condition, vote):
            return False
    return True


def _are_same(a: Computation, first: str, b: Computation, second: str) -> bool:
    """Tell whether two instructions compute the same of the same state."""
    waiting, seen = [(first, second)], set[tuple[str, str]]()
    while waiting:
        pair = waiting.pop()
        if pair in seen:
            continue
        seen.add(pair)
        one, other = a[pair[0]], b[pair[1]]
        if _kind_of(one) != _kind_of(other) or len(one.operands) != len(other.operands):
            return False
        waiting += zip(one.operands, other.operands, strict=True)
    return True


def _kind_of(instr: Instruction) -> tuple[object, ...]:
    held = instr.payload
    payload = (held.shape, np.asarray(held.array).tobytes()) if isinstance(held, Literal) else held
    attrs = {key: value for key, value in instr.attrs.items() if key != "metadata"}
    return instr.opcode, instr.shape, payload, attrs


def _is_each_pointwise(
    computation: Computation, dims: set[tuple[int, ...]], computations: Mapping[str, Computation]
) -> bool:
    return all(
        _is_pointwise(instr, computation, dims)
        and (
            instr.opcode not in _CALLS
            or all(_is_each_pointwise(computations[c], dims, computations) for c in instr.called())
        )
        for instr in computation.instructions
    )


def _is_pointwise(instr: Instruction, computation: Computation, dims: set[tuple[int, ...]]) -> bool:
    if not all(_is_numbers(leaf, dims) for leaf in instr.shape.leaves()):
        return False
    if instr.opcode == "constant":
        return instr.shape.elements == 1 if isinstance(instr.shape, Shape) else False
    if instr.opcode == "broadcast":
        given = computation[instr.operands[0]].shape
        return isinstance(given, Shape) and not given.dims
    spec = OPS[instr.opcode]
    return instr.opcode in _STRUCTURE | _CALLS or (spec.elementwise and not spec.effect)


def _is_numbers(leaf: AnyShape, dims: set[tuple[int, ...]]) -> bool:
    return isinstance(leaf, Shape) and not leaf.dynamic and leaf.dims in dims and leaf.size > 0
