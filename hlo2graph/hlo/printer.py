"""Modules as canonical HLO text, which XLA's parser reads back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hlo2graph.hlo.attributes import (
    KINDS,
    Attribute,
    AttrKind,
    DimLabels,
    PaddingDim,
    Raw,
    SliceDim,
    Window,
    WindowDim,
)
from hlo2graph.hlo.literal_text import format_literal
from hlo2graph.hlo.module import Computation, Instruction, Module

__all__ = ["format_computation", "format_instruction", "format_literal", "format_module"]


def format_module(module: Module) -> str:
    """Return the module as text that parses to an equal module."""
    header = "".join(f", {name}={text}" for name, text in module.attrs.items())
    blocks = [f"HloModule {module.name}{header}\n"]
    if module.tables:
        blocks.append(f"{module.tables.strip()}\n")
    blocks += [
        format_computation(computation, is_entry=name == module.entry_name)
        for name, computation in module.computations.items()
    ]
    return "\n".join(blocks)


def format_computation(computation: Computation, *, is_entry: bool = False) -> str:
    """Return the computation as text: its signature, an instruction a line, and a brace."""
    parameters = ", ".join(
        f"{p.name}: {p.shape.without_layout_text()}" for p in computation.parameters
    )
    entry = "ENTRY " if is_entry else ""
    result = computation.result.shape.without_layout_text()
    thread = computation.execution_thread
    lines = [
        f"{entry}%{computation.name} ({parameters}) -> {result} {{",
        *(
            f"  {'ROOT ' if i.name == computation.root else ''}{format_instruction(i)}"
            for i in computation.instructions
        ),
        "}" if thread is None else f"}}, execution_thread={quoted(thread)}",
    ]
    return "\n".join(lines) + "\n"


def format_instruction(instruction: Instruction) -> str:
    """Return the instruction as text, without `ROOT` and indentation."""
    payload = instruction.payload
    if payload is None:
        inside = _operands(instruction.operands)
    elif isinstance(payload, int):
        inside = str(payload)
    else:
        inside = format_literal(payload)
    attrs = "".join(
        f", {name}={format_attribute(name, value)}" for name, value in instruction.attrs.items()
    )
    return f"%{instruction.name} = {instruction.shape} {instruction.opcode}({inside}){attrs}"


def format_attribute(name: str, value: Attribute) -> str:
    """Return the text of an attribute's value."""
    return value if isinstance(value, Raw) else _FORMATS[KINDS[name]](value)


def _operands(names: Iterable[str]) -> str:
    """Join operands with XLA's `/*index=N*/` mark before each fifth."""
    return ", ".join(
        f"/*index={i}*/%{name}" if i and i % 5 == 0 else f"%{name}" for i, name in enumerate(names)
    )


def quoted(text: str) -> str:
    """Return the text as a string in quotes, its bytes escaped as in C."""
    raw = text.encode("utf-8", "surrogateescape")
    return '"' + "".join(map(_escaped, raw)) + '"'


_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord('"'): '\\"',
            ord("'"): "\\'", ord("\\"): "\\\\"}  # fmt: skip


def _escaped(byte: int) -> str:
    if byte in _ESCAPES:
        return _ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def _list(value: Attribute) -> str:
    assert isinstance(value, tuple)
    return "{" + ",".join(map(str, value)) + "}"


def _bool(value: Attribute) -> str:
    return "true" if value else "false"


def _name(value: Attribute) -> str:
    return f"%{value}"


def _names(value: Attribute) -> str:
    assert isinstance(value, tuple)
    return "{" + ", ".join(f"%{name}" for name in value) + "}"


def _shapes(value: Attribute) -> str:
    assert isinstance(value, tuple)
    return "{" + ", ".join(map(str, value)) + "}"


def _dim_labels(value: Attribute) -> str:
    assert isinstance(value, DimLabels)
    return f"{value.lhs}_{value.rhs}->{value.out}"


def _padding(value: Attribute) -> str:
    assert isinstance(value, tuple)
    return "x".join(_padding_dim(dim) for dim in value if isinstance(dim, PaddingDim))


def _padding_dim(dim: PaddingDim) -> str:
    interior = f"_{dim.interior}" if dim.interior else ""
    return f"{dim.low}_{dim.high}{interior}"


def _slice(value: Attribute) -> str:
    assert isinstance(value, tuple)
    return "{" + ", ".join(_range(dim) for dim in value if isinstance(dim, SliceDim)) + "}"


def _range(dim: SliceDim) -> str:
    stride = f":{dim.stride}" if dim.stride != 1 else ""
    return f"[{dim.start}:{dim.limit}{stride}]"


_WINDOW_FIELDS: tuple[tuple[str, Callable[[WindowDim], str], str], ...] = (
    ("size", lambda dim: str(dim.size), ""),
    ("stride", lambda dim: str(dim.stride), "1"),
    ("pad", lambda dim: f"{dim.pad_low}_{dim.pad_high}", "0_0"),
    ("lhs_dilate", lambda dim: str(dim.lhs_dilate), "1"),
    ("rhs_dilate", lambda dim: str(dim.rhs_dilate), "1"),
    ("rhs_reversal", lambda dim: str(int(dim.reversal)), "0"),
)


def _window(value: Attribute) -> str:
    assert isinstance(value, Window)
    fields = []
    for field, text, default in _WINDOW_FIELDS:
        values = [text(dim) for dim in value.dims]
        if any(written != default for written in values):
            fields.append(f"{field}={'x'.join(values)}")
    return "{" + " ".join(fields) + "}"


def _string(value: Attribute) -> str:
    return quoted(str(value))


_FORMATS: dict[AttrKind, Callable[[Attribute], str]] = {
    AttrKind.INT: str,
    AttrKind.FLOAT: repr,
    AttrKind.BOOL: _bool,
    AttrKind.WORD: str,
    AttrKind.STRING: _string,
    AttrKind.INTS: _list,
    AttrKind.COMPUTATION: _name,
    AttrKind.COMPUTATIONS: _names,
    AttrKind.INSTRUCTIONS: _names,
    AttrKind.WINDOW: _window,
    AttrKind.DIM_LABELS: _dim_labels,
    AttrKind.PADDING: _padding,
    AttrKind.SLICE: _slice,
    AttrKind.SHAPE: str,
    AttrKind.SHAPES: _shapes,
    AttrKind.RAW: str,
}
