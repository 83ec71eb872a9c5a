"""Checks a module's header against its entry computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from hlo2graph.errors import VerifyError
from hlo2graph.frontend.header import entry_layout
from hlo2graph.frontend.scan import Fault
from hlo2graph.frontend.shapes import ShapeReader
from hlo2graph.hlo import AnyShape, Instruction, Module, Shape, TupleShape
from hlo2graph.hlo.aliases import IoAlias, io_aliases


def check_entry(module: Module) -> None:
    """Raise a VerifyError where the layout or the aliases in the header do not fit."""
    if module.entry_name not in module.computations:
        _refuse(module, f"{module.entry_name} is said to be the entry, but is not there")
    _check_layout(module)
    _check_aliases(module)


def _refuse(module: Module, message: str) -> NoReturn:
    raise VerifyError(message, module.span)


def _check_layout(module: Module) -> None:
    text = module.attrs.get("entry_computation_layout")
    if text is None:
        return
    try:
        parameters, result = entry_layout(text, ShapeReader())
    except Fault as fault:
        _refuse(module, f"entry_computation_layout: {fault.message}")
    entry = module.entry
    found = [p.shape for p in entry.parameters]
    if len(parameters) != len(found):
        _refuse(
            module,
            f"entry_computation_layout has {len(parameters)} parameters, "
            f"{entry.name} has {len(found)}",
        )
    for number, (said, shape) in enumerate(zip(parameters, found, strict=True)):
        if not said.compatible(shape):
            _refuse(
                module,
                f"entry_computation_layout says that parameter {number} is {said}, it is {shape}",
            )
    if not result.compatible(entry.result.shape):
        _refuse(
            module,
            f"entry_computation_layout says that the result is {result}, "
            f"it is {entry.result.shape}",
        )


def _check_aliases(module: Module) -> None:
    outputs: set[tuple[int, ...]] = set()
    inputs: set[tuple[int, tuple[int, ...]]] = set()
    parameters = module.entry.parameters
    for alias in io_aliases(module):
        _check_alias(module, parameters, alias)
        source = (alias.parameter, alias.parameter_index)
        if alias.output_index in outputs or source in inputs:
            _refuse(module, f"input_output_alias names a leaf twice: {alias}")
        outputs.add(alias.output_index)
        inputs.add(source)


def _check_alias(module: Module, parameters: Sequence[Instruction], alias: IoAlias) -> None:
    if alias.parameter >= len(parameters):
        _refuse(module, f"input_output_alias names a parameter that is not there: {alias}")
    target = _leaf(module.entry.result.shape, alias.output_index)
    source = _leaf(parameters[alias.parameter].shape, alias.parameter_index)
    if target is None or source is None:
        _refuse(module, f"input_output_alias names a leaf that is not there: {alias}")
    if target.size != source.size:
        _refuse(
            module,
            f"input_output_alias joins {source.without_layout_text()} of {source.size} bytes and "
            f"{target.without_layout_text()} of {target.size} bytes: {alias}",
        )


def _leaf(shape: AnyShape, index: tuple[int, ...]) -> Shape | None:
    """Return the array at `index`; None where there is nothing, or a tuple."""
    for part in index:
        if not isinstance(shape, TupleShape) or part >= len(shape.parts):
            return None
        shape = shape.parts[part]
    return shape if isinstance(shape, Shape) else None
