"""Runs computations on host arrays, one instruction after the other.

In go arrays for the parameters, out comes the root's value. Results may be views of arguments or
of constants, so nobody writes to them; an array is dropped after its last reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import AnyShape, Computation, Instruction
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_call import misfit
from hlo2graph.ops.dynamic import UNSIZED
from hlo2graph.ops.spec import HostRule, HostValue

DEEPEST = 200  # calls within calls; each takes two of Python's 1000 frames


@dataclass(frozen=True, slots=True)
class _Step:
    """Put `rule(instr, operands)` into `target`, then drop what is not read again."""

    rule: HostRule
    instr: Instruction
    operands: tuple[int, ...]
    target: int
    dead: tuple[int, ...]


class HostEvaluator:
    """Evaluates any of `computations`; steps are worked out once a computation.

    `rules` stand in for the op table's, by opcode.
    """

    def __init__(
        self,
        computations: Mapping[str, Computation],
        rules: Mapping[str, HostRule] = MappingProxyType({}),
    ) -> None:
        self._computations = computations
        self._rules = rules
        self._steps: dict[str, tuple[_Step, ...]] = {}
        self._operand_shapes: dict[int, tuple[AnyShape, ...]] = {}
        self._depths: dict[str, int] = {}

    @property
    def computations(self) -> Mapping[str, Computation]:
        """All computations that can be called."""
        return self._computations

    def operand_shapes(self, instr: Instruction) -> tuple[AnyShape, ...]:
        """Return the shapes, with layouts, of the operands of `instr`."""
        return self._operand_shapes[id(instr)]

    def __call__(self, computation: str, arguments: Sequence[HostValue]) -> HostValue:
        """Return the computation's result; see `ops.spec.Evaluator` for arrays as scalars."""
        steps = self._steps.get(computation)
        if steps is None:
            steps = self._steps[computation] = self._plan(self._computations[computation])
        values: list[HostValue | None] = [None] * len(steps)
        with np.errstate(all="ignore"):
            for step in steps:
                number = step.instr.payload
                given = (
                    [arguments[number]]
                    if step.instr.opcode == "parameter" and isinstance(number, int)
                    else [_held(values[at]) for at in step.operands]
                )
                values[step.target] = step.rule(step.instr, given, self)
                for at in step.dead:
                    values[at] = None
        return _held(values[-1])

    def _plan(self, computation: Computation) -> tuple[_Step, ...]:
        """Return the steps that the root needs, the root's last."""
        self._check_depth(computation)
        needed = _needed(computation)
        slots = {instr.name: at for at, instr in enumerate(needed)}
        last = {slots[name]: at for at, instr in enumerate(needed) for name in instr.operands}
        steps = []
        for at, instr in enumerate(needed):
            operands = tuple(slots[name] for name in instr.operands)
            dead = tuple(sorted({slot for slot in operands if last[slot] == at}))
            rule = self._rules.get(instr.opcode) or OPS[instr.opcode].host
            steps.append(_Step(rule, instr, operands, at, dead))
            self._operand_shapes[id(instr)] = tuple(computation[n].shape for n in instr.operands)
        return tuple(steps)

    def _check_depth(self, computation: Computation) -> None:
        if not self._depths:
            self._depths = _depths(self._computations)
        if (depth := self._depths[computation.name]) > DEEPEST:
            message = f"{computation.name} nests {depth} calls; at most {DEEPEST} can be evaluated"
            raise UnsupportedError(message, computation.span)


def _depths(computations: Mapping[str, Computation]) -> dict[str, int]:
    """Return how many computations deep each one calls; itself counts as one."""
    depths: dict[str, int] = {}
    waiting = list(computations)
    while waiting:
        name = waiting[-1]
        called = {c for instr in computations[name].instructions for c in instr.called()}
        if unknown := called - depths.keys():
            waiting.extend(unknown)
            continue
        waiting.pop()
        depths[name] = 1 + max((depths[c] for c in called), default=0)
    return depths


def _held(value: HostValue | None) -> HostValue:
    assert value is not None
    return value


def _needed(computation: Computation) -> list[Instruction]:
    """Return the instructions that the root depends on, in order, the root last."""
    wanted = {computation.root}
    kept = []
    for instr in reversed(computation.instructions):
        if instr.name in wanted:
            wanted.update(instr.operands)
            kept.append(instr)
    kept.reverse()
    return kept


def unsupported(
    computations: Mapping[str, Computation], entry: str | None = None
) -> list[tuple[Instruction, str]]:
    """Return each instruction that cannot run on the host, and why, in order of the text.

    Looks at what `entry` reaches, or at all computations.
    """
    names = computations.keys() if entry is None else _reached(computations, entry)
    return [
        (instr, reason)
        for name, computation in computations.items()
        if name in names
        for instr in computation.instructions
        if (reason := _why_not(computation, instr)) is not None
    ]


def _why_not(computation: Computation, instr: Instruction) -> str | None:
    spec = OPS.get(instr.opcode)
    if spec is None:
        return f"{instr.opcode} is no operation known here"
    if (reason := spec.why_not(instr)) is not None:
        return reason
    operands = [computation[name].shape for name in instr.operands]
    if instr.opcode == "custom-call" and (reason := misfit(instr, operands)) is not None:
        return reason
    inherited = any(map(_is_dynamic, operands))
    if _is_dynamic(instr.shape) and not inherited:
        return "has a size that is known only at run time"
    if inherited and instr.opcode in UNSIZED:
        return "takes no array whose size is known only at run time"
    return None


def _is_dynamic(shape: AnyShape) -> bool:
    return any(leaf.dynamic or min(leaf.dims, default=0) < 0 for leaf in shape.leaves())


def _reached(computations: Mapping[str, Computation], entry: str) -> set[str]:
    seen, open_names = {entry}, [entry]
    while open_names:
        for instr in computations[open_names.pop()].instructions:
            fresh = set(instr.called()) - seen
            seen |= fresh
            open_names.extend(fresh)
    return seen
