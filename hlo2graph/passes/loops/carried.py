"""State that is carried on: which value takes the place of which, in a loop or of an argument.

Where another kernel reads the old state while the next is made, that costs a copy, or the place.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.hlo import Computation, Instruction, Module, Shape
from hlo2graph.hlo.aliases import MUCH_GIVEN_UP, io_aliases
from hlo2graph.passes.rules.tuple_parts import index_of


def carried_states(module: Module) -> dict[str, Mapping[str, str]]:
    """Map each value to the state that it is the next of, by names, for each computation."""
    found: dict[str, Mapping[str, str]] = {}
    for computation in module.computations.values():
        for instr in computation.instructions:
            if instr.opcode == "while":
                body = str(instr.attrs["body"])
                found[body] = _next_round(module.computations[body])
    if given_up := _given_up(module):
        found[module.entry_name] = given_up
    return found


def _next_round(body: Computation) -> dict[str, str]:
    """Map each value that a loop's body gives to the state of the round before."""
    root = body.result
    if root.opcode != "tuple":
        return {}
    parts = _parts(body)
    return {
        root.operands[number]: name for (_, number), name in parts.items() if number is not None
    }


def _given_up(module: Module) -> dict[str, str]:
    """Map each result to the argument in whose memory it may lie, if that is much in all."""
    entry, sizes = module.entry, 0
    parts, root = _parts(entry), entry.result
    found: dict[str, str] = {}
    for alias in io_aliases(module):
        source, target = alias.parameter_index, alias.output_index
        if len(source) > 1 or len(target) > 1:
            continue
        state = parts.get((alias.parameter, source[0] if source else None))
        if target and root.opcode != "tuple":
            continue
        result = root.operands[target[0]] if target else root.name
        shape = entry[result].shape
        if state is not None and isinstance(shape, Shape):
            found[result] = state
            sizes += shape.size
    return found if sizes > MUCH_GIVEN_UP else {}


def _parts(computation: Computation) -> dict[tuple[int, int | None], str]:
    """Return the names of parameters, and of their parts, by number and number of the part."""
    found: dict[tuple[int, int | None], str] = {}
    for instr in computation.instructions:
        if instr.opcode == "parameter":
            found[_number(instr), None] = instr.name
        elif instr.opcode == "get-tuple-element":
            source = computation[instr.operands[0]]
            if source.opcode == "parameter":
                found[_number(source), index_of(instr)] = instr.name
    return found


def _number(parameter: Instruction) -> int:
    assert isinstance(parameter.payload, int)
    return parameter.payload
