"""What lowering knows of called computations before it starts: order, effects, pass-through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlo2graph.errors import UnsupportedError, VerifyError
from hlo2graph.hlo import AnyShape, Computation, Instruction, Module, TupleShape
from hlo2graph.hlo.module import CALLING_ATTRS
from hlo2graph.ops.effects import has_effect

MOST_INSTRUCTIONS = 1_000_000  # a module may have once its calls are inlined

_INLINED = frozenset({"call", "while", "conditional", "async-start", "call-start"})
_CALLING = frozenset(CALLING_ATTRS)
_COMPUTED = -1  # not a leaf of a parameter


@dataclass(frozen=True, slots=True)
class Calls:
    """Facts of all computations that the entry reaches, by name.

    effects: the computations in which, or in whose callees, something has a side effect.
    passed: for each computation that is inlined, which leaf of its parameters (counted through
        all of them) each leaf of its result is, or -1 where it is computed.
    """

    effects: frozenset[str]
    passed: Mapping[str, tuple[int, ...]]


def study_calls(module: Module) -> Calls:
    """Look at every reachable computation once, callees before callers.

    Raises:
        VerifyError: a computation calls itself.
        UnsupportedError: inlining the calls makes the module too large.
    """
    effects: set[str] = set()
    sizes: dict[str, int] = {}
    passed: dict[str, tuple[int, ...]] = {}
    for computation in callees_first(module):
        name = computation.name
        size = len(computation.instructions)
        for instr in computation.instructions:
            if has_effect(instr):
                effects.add(name)
            for callee in called(instr):
                if callee in effects:
                    effects.add(name)
                if is_inlined(computation, instr):
                    size += sizes[callee]
        sizes[name] = size
        passed[name] = _passed(computation, passed)
    if sizes[module.entry_name] > MOST_INSTRUCTIONS:
        raise UnsupportedError(
            f"with its calls inlined, {module.name} has {sizes[module.entry_name]:,} instructions, "
            f"more than {MOST_INSTRUCTIONS:,}",
            module.entry.span,
        )
    return Calls(frozenset(effects), passed)


def called(instr: Instruction) -> Iterator[str]:
    """Yield the computations that `instr` calls; cheap where it calls none."""
    return iter(()) if _CALLING.isdisjoint(instr.attrs) else instr.called()


def is_inlined(computation: Computation, instr: Instruction) -> bool:
    """Tell whether what `instr` calls becomes thunks; a fusion of tuples is no kernel."""
    return instr.opcode in _INLINED or (
        instr.opcode == "fusion"
        and any(isinstance(computation[o].shape, TupleShape) for o in instr.operands)
    )


def callees_first(module: Module) -> list[Computation]:
    """Return the computations that the entry reaches, each behind all that it calls.

    Raises:
        VerifyError: a computation calls itself, directly or not.
    """
    order: dict[str, Computation] = {}
    open_: dict[str, Iterator[tuple[Instruction, str]]] = {}
    stack = [module.entry_name]
    open_[module.entry_name] = _calls_of(module.entry)
    while stack:
        name = stack[-1]
        for instr, callee in open_[name]:
            if callee in order:
                continue
            if callee in open_:
                raise VerifyError(f"computation {callee} calls itself", instr.span)
            open_[callee] = _calls_of(module.computations[callee])
            stack.append(callee)
            break
        else:
            stack.pop()
            del open_[name]
            order[name] = module.computations[name]
    return list(order.values())


def _calls_of(computation: Computation) -> Iterator[tuple[Instruction, str]]:
    return ((i, callee) for i in computation.instructions for callee in called(i))


def part_range(shape: AnyShape, index: int) -> tuple[int, int]:
    """Return which leaves of a tuple are its part `index`: [first, last)."""
    assert isinstance(shape, TupleShape)
    first = shape.starts[index]
    return first, first + shape.parts[index].leaf_count


def _passed(computation: Computation, known: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Follow parameters through tuples, calls and loops to the root."""
    first = 0
    starts: dict[str, int] = {}
    for parameter in computation.parameters:
        starts[parameter.name] = first
        first += parameter.shape.leaf_count
    env: dict[str, tuple[int, ...]] = {}
    for instr in computation.instructions:
        operands = [env[o] for o in instr.operands]
        env[instr.name] = (
            tuple(range(starts[instr.name], starts[instr.name] + instr.shape.leaf_count))
            if instr.opcode == "parameter"
            else _moved(instr, operands, computation, known)
            or (_COMPUTED,) * instr.shape.leaf_count
        )
    return env[computation.root]


def _moved(
    instr: Instruction,
    operands: list[tuple[int, ...]],
    computation: Computation,
    known: Mapping[str, tuple[int, ...]],
) -> tuple[int, ...] | None:
    """Return where the leaves of `instr` come from where it only moves them."""
    match instr.opcode:
        case "tuple":
            return tuple(leaf for operand in operands for leaf in operand)
        case "opt-barrier" | "domain":
            return operands[0]
        case "get-tuple-element":
            index = instr.attrs["index"]
            assert isinstance(index, int)
            first, last = part_range(computation[instr.operands[0]].shape, index)
            return operands[0][first:last]
        case "call":
            given = [leaf for operand in operands for leaf in operand]
            return tuple(
                given[leaf] if leaf != _COMPUTED else _COMPUTED
                for leaf in known[next(instr.called())]
            )
        case "while":
            body = known[str(instr.attrs["body"])]
            return tuple(leaf if body[i] == i else _COMPUTED for i, leaf in enumerate(operands[0]))
        case _:
            return None
