"""Lowering small modules, and looking at what came of them."""

from __future__ import annotations

from hlo2graph.frontend import parse
from hlo2graph.program.drop_dead import drop_dead
from hlo2graph.program.lower import lower
from hlo2graph.program.thunks import Program, Value


def lowered(body: str, header: str = "", computations: str = "") -> Program:
    """Lower a module whose entry holds the lines `body`."""
    text = f"HloModule m{header}\n{computations}\nENTRY main {{\n{body}\n}}\n"
    return drop_dead(lower(parse(text)))


def names(program: Program) -> list[str]:
    return [thunk.name for thunk in program.body.thunks]


def origins(values: tuple[Value, ...]) -> list[str]:
    return [value.origin for value in values]


def opcodes(program: Program, computation: str) -> list[str]:
    return [i.opcode for i in program.computations[computation].instructions]


ADD = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
"""
