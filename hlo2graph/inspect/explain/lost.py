"""What became of an instruction of a program that no thunk of its plan holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from difflib import get_close_matches

from hlo2graph.errors import InputError, Note
from hlo2graph.hlo import Computation, Instruction, Module

MOST_NAMED = 4  # candidates that an error names
UNMOVED = {
    "parameter": "a parameter is where its caller puts it",
    "constant": "a constant is there before anything runs",
    "tuple": "a tuple is no bytes of its own",
    "get-tuple-element": "what is taken out of a tuple stays where it is",
    "bitcast": "a bitcast shows the same bytes",
}


def lost(wanted: str, known: Collection[str], module: Module | None) -> InputError:
    """Return the error for a name that no thunk has; `known` are those that thunks have.

    Where `module`, what the plan was made of, has an instruction of that name, it says where, and
    which thunks take part in what it is for.
    """
    for computation in module.computations.values() if module is not None else ():
        if wanted in computation:
            return _gone(computation[wanted], computation, known)
    close = get_close_matches(wanted, known, n=1)
    hint = f"perhaps {close[0]} was meant" if close else "`hlo2graph plan` lists them"
    return InputError(
        f"no thunk of this plan is called {wanted}, and none holds an instruction of that name",
        notes=(Note("parameters, tuples and views have no thunk"), Note(hint)),
    )


def _gone(instruction: Instruction, computation: Computation, known: Collection[str]) -> InputError:
    why = UNMOVED.get(
        instruction.opcode,
        "it was simplified away, is a view, or stands in a kernel under another name: "
        "--fuse none plans a program as it is written",
    )
    notes = [Note(why)]
    if near := _users(instruction.name, computation, known):
        rest = f", and {len(near) - MOST_NAMED} more" if len(near) > MOST_NAMED else ""
        notes.append(Note(f"what uses it is there: {', '.join(near[:MOST_NAMED])}{rest}"))
    return InputError(
        f"{instruction.name} of {computation.name} has no thunk in this plan, and none holds an "
        "instruction of that name",
        instruction.span,
        tuple(notes),
    )


def _users(name: str, computation: Computation, known: Collection[str]) -> list[str]:
    """Return the first instructions that use it, by way of others, and that thunks hold."""
    users: dict[str, list[str]] = {}
    for instruction in computation.instructions:
        for operand in instruction.operands:
            users.setdefault(operand, []).append(instruction.name)
    found, waiting, seen = [], deque([name]), {name}
    while waiting:
        for user in users.get(waiting.popleft(), ()):
            if user in seen:
                continue
            seen.add(user)
            if user in known:
                found.append(user)
            else:
                waiting.append(user)
    return found
