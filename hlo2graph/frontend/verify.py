"""Checks that a module is legal HLO: what it says of shapes is what follows from its operands.

The first fault is raised as a VerifyError. An instruction like one that was checked before (same
opcode, shapes and attributes) is not checked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NoReturn, TypeAlias

from hlo2graph.errors import Note, VerifyError
from hlo2graph.frontend.allowed import ALLOWED_ATTRS, COMMON_ATTRS
from hlo2graph.frontend.shapes import MOST_ELEMENTS
from hlo2graph.frontend.verify_devices import check_devices
from hlo2graph.frontend.verify_entry import check_entry
from hlo2graph.frontend.verify_operands import check_operands
from hlo2graph.frontend.verify_pairs import check_pairs
from hlo2graph.frontend.verify_sharding import check_sharding_fits, check_shardings_agree
from hlo2graph.frontend.verify_threads import check_threads
from hlo2graph.hlo import AnyShape, Computation, Instruction, Module
from hlo2graph.hlo.module import NO_ATTRS
from hlo2graph.ops import OPS
from hlo2graph.ops.custom_call import check_call
from hlo2graph.ops.spec import OpSpec

_WIDEST = 200  # characters of a shape in a message
_Key: TypeAlias = tuple[object, ...]


def verify(module: Module) -> Module:
    """Return `module` if it is legal.

    Raises:
        VerifyError: it is not; the message names the first fault.
    """
    verify_computations(module.computations)
    check_entry(module)
    check_devices(module)
    return module


def verify_computations(computations: Mapping[str, Computation]) -> None:
    """Check computations that may call those before them.

    Raises:
        VerifyError: one is not legal; the message names the first fault.
    """
    checker = _Checker(computations)
    for computation in computations.values():
        checker.check(computation)


def verify_calls(computations: Mapping[str, Computation]) -> None:
    """Check what known libraries are given in legal computations, as it takes to plan them.

    Raises:
        VerifyError: a call and its operands do not fit.
    """
    for computation in computations.values():
        for instr in computation.instructions:
            if instr.opcode == "custom-call":
                check_call(instr, [computation[name].shape for name in instr.operands])


class _Checker:
    """Checks computations in order, each of which may call those before it."""

    def __init__(self, computations: Mapping[str, Computation]) -> None:
        self._computations = computations
        self._checked: set[str] = set()  # names of computations
        self._seen: dict[_Key, AnyShape] = {}  # instructions found legal

    def check(self, computation: Computation) -> None:
        """Check one computation."""
        shapes: dict[str, AnyShape] = {}
        parameters: list[Instruction] = []
        for instr in computation.instructions:
            self._instruction(instr, shapes)
            shapes[instr.name] = instr.shape
            if instr.opcode == "parameter":
                parameters.append(instr)
        if computation.root not in shapes:
            message = f"{computation.name} has no instruction {computation.root} to be its root"
            raise VerifyError(message, computation.span)
        _check_numbers(computation, parameters)
        check_pairs(computation)
        check_threads(computation, self._computations)
        check_shardings_agree(computation, self._computations)
        self._checked.add(computation.name)

    def _instruction(self, instr: Instruction, shapes: Mapping[str, AnyShape]) -> None:
        check_sharding_fits(instr)
        try:
            operands = [shapes[name] for name in instr.operands]
        except KeyError as missing:
            _refuse(instr, f"operand {missing.args[0]} is not defined before it is used")
        if instr.name in shapes:
            _refuse(instr, f"a second instruction is named {instr.name}")
        key: _Key | None = None
        if instr.payload is None:
            key = (instr.opcode, id(instr.shape), *map(id, operands))
            if instr.attrs is not NO_ATTRS:
                key += tuple(
                    (name, id(value))
                    for name, value in instr.attrs.items()
                    if name not in COMMON_ATTRS
                )
            if key in self._seen:
                self._check_order(instr, shapes)
                return
        self._check_alone(instr, operands)
        self._check_order(instr, shapes)
        if key:
            self._seen[key] = instr.shape

    def _check_order(self, instr: Instruction, shapes: Mapping[str, AnyShape]) -> None:
        predecessors = instr.attrs.get("control-predecessors", ())
        assert isinstance(predecessors, tuple)
        for name in predecessors:
            if name not in shapes:
                _refuse(instr, f"its control predecessor {name} does not come before it")

    def _check_alone(self, instr: Instruction, operands: list[AnyShape]) -> None:
        """Check what depends on nothing but the instruction and its operands' shapes."""
        spec = OPS.get(instr.opcode)
        if spec is None:
            _refuse(instr, f"unknown opcode {instr.opcode}")
        _check_attrs(instr)
        _check_replication(instr)
        _check_arity(instr, spec)
        _check_arrays(instr)
        check_operands(instr, operands)
        for called in instr.called():
            self._check_called(instr, called)
        inferred = spec.infer(instr, operands, self._computations)
        if inferred is not instr.shape and not inferred.compatible(instr.shape):
            _refuse(
                instr,
                f"{instr.opcode} of these operands gives {_shown(inferred)}, "
                f"but {_shown(instr.shape)} is written",
            )

    def _check_called(self, instr: Instruction, called: str) -> None:
        if called in self._checked:
            return
        if called in self._computations:
            note = Note("defined here", self._computations[called].span)
            _refuse(instr, f"{called} is called before it is defined, or calls itself", note)
        _refuse(instr, f"no computation is named {called}")


def _shown(shape: AnyShape) -> str:
    text = shape.without_layout_text()
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."


def _refuse(instr: Instruction, message: str, *notes: Note) -> NoReturn:
    raise VerifyError(message, instr.span, notes)


def _check_attrs(instr: Instruction) -> None:
    allowed = ALLOWED_ATTRS[instr.opcode]
    for name in instr.attrs:
        if name not in allowed:
            _refuse(instr, f"{instr.opcode} has no attribute {name}")


def _check_replication(instr: Instruction) -> None:
    held = instr.attrs.get("parameter_replication")
    if held is None:
        return
    said = str(held).count("true") + str(held).count("false")
    if said != instr.shape.leaf_count:
        _refuse(instr, f"parameter_replication says {said}, there are {instr.shape.leaf_count}")


def _check_arity(instr: Instruction, spec: OpSpec) -> None:
    found = len(instr.operands)
    least, most = (spec.arity, spec.arity) if isinstance(spec.arity, int) else spec.arity
    if found < least or (most is not None and found > most):
        _refuse(instr, f"{instr.opcode} takes {_counted(least, most)}, got {found}")


def _counted(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} operands or more"
    if least != most:
        return f"{least} to {most} operands"
    return f"{least} operand{'s' * (least != 1)}"


def _check_arrays(instr: Instruction) -> None:
    for leaf in instr.shape.leaves():
        if leaf.elements > MOST_ELEMENTS:
            _refuse(instr, "the array has 2^63 elements or more")
        if not leaf.elements and prod(filter(None, leaf.dims)) * leaf.dtype.size > MOST_ELEMENTS:
            _refuse(instr, "the array has 2^63 bytes or more but for its empty dimensions")
        order = leaf.layout.minor_to_major if leaf.layout else ()
        if leaf.layout and sorted(order) != list(range(leaf.rank)):
            _refuse(instr, f"the layout {leaf.layout} is no order of {leaf.rank} dimensions")


def _check_numbers(computation: Computation, parameters: list[Instruction]) -> None:
    """Check that the parameters are numbered from 0 without a gap."""
    by_number: dict[int, Instruction] = {}
    for parameter in parameters:
        number = parameter.payload
        if not isinstance(number, int):
            _refuse(parameter, "a parameter needs a number")
        if number in by_number:
            note = Note("the other one", by_number[number].span)
            _refuse(parameter, f"{computation.name} has two parameters {number}", note)
        by_number[number] = parameter
    for expected, number in enumerate(sorted(by_number)):
        if number != expected:
            _refuse(
                by_number[number],
                f"{computation.name} has a parameter {number}, but no parameter {expected}",
            )
