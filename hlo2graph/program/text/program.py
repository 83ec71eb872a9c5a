"""A Program as text, for looking at: values without addresses where a Plan has slices.

Nothing reads it back. It follows thunk-sequence text, so that the two can be laid side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from hlo2graph.program.thunks import (
    Collective,
    Computing,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Program,
    Sequence,
    Thunk,
    Value,
    While,
)
from hlo2graph.program.uses import nested


def format_program(program: Program) -> str:
    """Return the program's text, one thunk a line."""
    lines = [f"Program {program.name}"]
    for value, port in zip(program.body.params, program.inputs, strict=True):
        lines.append(f"parameter {value_text(value)}, {port.name}")
    lines += [f"constant {value_text(value)}, {value.origin}" for value, _ in program.constants]
    lines += _sequence(program.body, "")
    for value, port in zip(program.body.results, program.outputs, strict=True):
        lines.append(f"result {value_text(value)}, {port.name}")
    for alias in program.aliases:
        bond = "must" if alias.must else "may"
        lines.append(f"alias result {alias.output} -> parameter {alias.input}, {bond}")
    return "\n".join(lines) + "\n"


def value_text(value: Value) -> str:
    """Return `v12:f32[4]{0}`."""
    return f"v{value.id}:{value.shape}"


def _sequence(sequence: Sequence[Value], indent: str) -> Iterator[str]:
    for position, thunk in enumerate(sequence.thunks):
        inner = nested(thunk)
        yield f"{indent}t{position}: {_thunk(thunk)}{' {' if inner else ''}"
        for label, part in inner:
            yield f"{indent}  {label} {_braced(part.params)} -> {_braced(part.results)} {{"
            yield from _sequence(part, indent + "    ")
            yield f"{indent}  }}"
        if inner:
            yield f"{indent}}}"


def _thunk(thunk: Thunk[Value]) -> str:
    parts = [f"{type(thunk).__name__.lower()} {thunk.name}", *_fields(thunk)]
    if thunk.after:
        parts.append(f"after={{{', '.join(thunk.after)}}}")
    return ", ".join(parts)


def _fields(thunk: Thunk[Value]) -> tuple[str, ...]:
    match thunk:
        case Kernel() | Library() | Collective():
            return (f"calls=%{thunk.computation}", *_uses(thunk))
        case Copy():
            return (f"source={value_text(thunk.source)}", f"target={value_text(thunk.target)}")
        case Fill():
            return (f"pattern=0x{thunk.pattern.hex()}", f"target={value_text(thunk.target)}")
        case While():
            count = () if thunk.trip_count is None else (f"trip_count={thunk.trip_count}",)
            return (f"inits={_braced(thunk.inits)}", f"results={_braced(thunk.results)}", *count)
        case Conditional():
            return (f"selector={value_text(thunk.selector)}", f"results={_braced(thunk.results)}")
        case _:
            assert_never(thunk)


def _uses(thunk: Computing[Value]) -> tuple[str, ...]:
    parts = [f"reads={_braced(thunk.reads)}", f"writes={_braced(thunk.writes)}"]
    if isinstance(thunk, Library) and thunk.workspace:
        parts.append(f"workspace={_braced(thunk.workspace)}")
    if isinstance(thunk, Kernel) and thunk.effect:
        parts.append("effect")
    return tuple(parts)


def _braced(values: tuple[Value, ...]) -> str:
    return f"{{{', '.join(map(value_text, values))}}}"
