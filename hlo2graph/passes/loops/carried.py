"""The state of loops: which value of a body becomes which state of the next round."""

from __future__ import annotations

from hlo2graph.hlo import Computation, Module


def loop_bodies(module: Module) -> set[str]:
    """Return the names of the computations that are bodies of loops."""
    return {
        str(instr.attrs["body"])
        for computation in module.computations.values()
        for instr in computation.instructions
        if instr.opcode == "while"
    }


def carried_state(body: Computation) -> dict[str, str]:
    """Map each value that a loop's body gives to the state that it is the next of, by names.

    Where another kernel reads the old state while the next is made, the loop takes a copy.
    """
    root = body.result
    if root.opcode != "tuple":
        return {}
    found: dict[str, str] = {}
    for instr in body.instructions:
        if instr.opcode != "get-tuple-element":
            continue
        number = instr.attrs["index"]
        assert isinstance(number, int)
        if body[instr.operands[0]].opcode == "parameter":
            found[root.operands[number]] = instr.name
    return found
