"""What is known of one target of a custom call, and how its backend_config is read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import float_info
from typing import Any, TypeAlias

from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape
from hlo2graph.ops.device import ByLeaf, DeviceRule, NoDevice, OwnKernel
from hlo2graph.ops.expect import ALL, require
from hlo2graph.ops.spec import Array, HostValue

Check: TypeAlias = Callable[[Instruction, Sequence[AnyShape]], None]
Rule: TypeAlias = Callable[[Instruction, Sequence[HostValue]], HostValue]
DeviceChoice: TypeAlias = DeviceRule | ByLeaf | OwnKernel | NoDevice


def nothing_missing(_: Instruction) -> str | None:
    """Every call of the target runs."""
    return None


def as_written(instr: Instruction) -> Instruction:
    """Return a call that has no workspace and is no operation of HLO."""
    return instr


@dataclass(frozen=True, slots=True)
class Target:
    """A custom call's target.

    check: refuses operands and a result that the target cannot have; asked only where `why_not`
        has nothing to say.
    host: the definition of correct, in NumPy.
    device: what a call needs on the device.
    why_not: why this call cannot run: what its configuration says, or lacks.
    less_workspace: the call without the workspace at the end of its result; where it is no more
        than one of HLO's operations, that operation.
    """

    check: Check
    host: Rule
    device: Callable[[Instruction], DeviceChoice]
    why_not: Callable[[Instruction], str | None] = nothing_missing
    less_workspace: Callable[[Instruction], Instruction] = as_written


def on_device(choice: DeviceChoice) -> Callable[[Instruction], DeviceChoice]:
    """Return the choice of a target all of whose calls need the same."""
    return lambda _: choice


def target_of(instr: Instruction) -> str:
    """Return the target's name."""
    return str(instr.attrs.get("custom_call_target", ""))


def result_leaves(instr: Instruction) -> tuple[Shape, ...]:
    """Return the result's arrays: the tuple's parts, or the one array; none if others are there."""
    shape = instr.shape
    parts = shape.parts if isinstance(shape, TupleShape) else (shape,)
    flat = tuple(part for part in parts if isinstance(part, Shape) and part.dtype in ALL)
    return flat if len(flat) == len(parts) else ()


def first_leaves(instr: Instruction, count: int) -> Instruction:
    """Return the call with only the first `count` arrays of its result."""
    leaves = result_leaves(instr)[:count]
    attrs = {k: v for k, v in instr.attrs.items() if k != "output_to_operand_aliasing"}
    return replace(instr, shape=leaves[0] if count == 1 else TupleShape(leaves), attrs=attrs)


def as_result(instr: Instruction, leaves: Sequence[Array]) -> HostValue:
    """Return the result's arrays as the written shape holds them."""
    return tuple(leaves) if isinstance(instr.shape, TupleShape) else leaves[0]


def same_leaf(instr: Instruction, number: int, wanted: Shape) -> None:
    """Require that leaf `number` of the result is `wanted`."""
    leaf = result_leaves(instr)[number]
    require(
        instr,
        leaf.compatible(wanted),
        f"{target_of(instr)} gives {wanted} as result {number}, but {leaf} is written",
    )


def json_config(instr: Instruction, part: str) -> Mapping[str, Any] | None:
    """Return the object `part` of a backend_config in JSON, or None if that cannot be read.

    Older dumps quote the JSON and hold the part alone.
    """
    text = str(instr.attrs.get("backend_config", "{}"))
    try:
        held = json.loads(text)
        held = json.loads(held) if isinstance(held, str) else held
    except (ValueError, RecursionError):
        return None
    found = held.get(part, held) if isinstance(held, dict) else None
    return found if isinstance(found, dict) else None


def json_flag(instr: Instruction, part: str, name: str) -> bool | None:
    """Return a flag of that part of the configuration, false where it is left out.

    None where there is no such part, or the flag is none.
    """
    config = json_config(instr, part)
    found = config.get(name, False) if config is not None else None
    return found if isinstance(found, bool) else None


def is_finite(number: object) -> bool:
    """Tell whether a value of a configuration is a number that a float64 can hold."""
    return isinstance(number, int | float) and -float_info.max <= number <= float_info.max


_ATTRIBUTE = re.compile(r"(\w+) *= *(-?\d+) *: *\w+")


def integer_config(instr: Instruction) -> dict[str, int]:
    """Return the integers of a backend_config in the form `{uplo = 76 : ui8}`."""
    text = str(instr.attrs.get("backend_config", ""))
    return {name: int(number[:20]) for name, number in _ATTRIBUTE.findall(text)}


_WORD = re.compile(r'(\w+) *= *(?:"(\w*)"|(true|false)\b)')


def word_config(instr: Instruction) -> dict[str, str]:
    """Return the words of a backend_config in the form `{lower = true, magma = "auto"}`."""
    text = str(instr.attrs.get("backend_config", ""))
    return {name: quoted or word for name, quoted, word in _WORD.findall(text)}
