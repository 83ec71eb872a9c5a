"""Checks of what an instruction says of its operands' layouts and of who shares their bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from hlo2graph.errors import VerifyError
from hlo2graph.hlo import AnyShape, Instruction, Shape, TupleShape

_ALIAS = re.compile(r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}\s*\)")


def check_operands(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    """Raise a VerifyError where layout constraints or aliases do not fit the operands."""
    if "operand_layout_constraints" in instr.attrs:
        _check_constraints(instr, operands)
    if "output_to_operand_aliasing" in instr.attrs:
        _check_aliases(instr, operands)


def _refuse(instr: Instruction, message: str) -> NoReturn:
    raise VerifyError(f"{instr.opcode}: {message}", instr.span)


def _check_constraints(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    held = instr.attrs["operand_layout_constraints"]
    assert isinstance(held, tuple)
    shapes = [shape for shape in held if isinstance(shape, Shape | TupleShape)]
    if len(shapes) != len(operands):
        _refuse(instr, f"has {len(operands)} operands, but constrains the layouts of {len(shapes)}")
    for number, (said, shape) in enumerate(zip(shapes, operands, strict=True)):
        if not said.compatible(shape):
            _refuse(instr, f"constrains the layout of {said}, but operand {number} is {shape}")


def _check_aliases(instr: Instruction, operands: Sequence[AnyShape]) -> None:
    text = str(instr.attrs["output_to_operand_aliasing"])
    for output, number, inner in _ALIAS.findall(text):
        if int(number) >= len(operands):
            _refuse(instr, f"aliases operand {number}, but has {len(operands)}")
        target = _part(instr, instr.shape, output, "its result")
        source = _part(instr, operands[int(number)], inner, f"operand {number}")
        if not _as_array(target).compatible(_as_array(source)):
            _refuse(
                instr,
                f"aliases {source.without_layout_text()} with {target.without_layout_text()}",
            )


def _as_array(shape: AnyShape) -> AnyShape:
    """Return what a buffer holds: arrays are pinned to buffers, and taken out of them again."""
    return replace(shape, is_buffer=False) if isinstance(shape, Shape) else shape


def _part(instr: Instruction, shape: AnyShape, index: str, what: str) -> AnyShape:
    for at in map(int, re.findall(r"\d+", index)):
        if not isinstance(shape, TupleShape) or at >= len(shape.parts):
            _refuse(instr, f"aliases {{{index.strip()}}} of {what}, which is not there")
        shape = shape.parts[at]
    return shape
