"""Checking what a pass makes of a module: its text, and that the host gives the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from agreement import arguments_of, leaves

import hlo2graph as h2g
from hlo2graph.frontend.verify import verify
from hlo2graph.hlo import Computation, Module
from hlo2graph.hlo.printer import format_instruction, format_module
from hlo2graph.inspect.compare import same_bits
from hlo2graph.ops.evaluate import HostEvaluator
from hlo2graph.ops.spec import Array

ADD = "sum { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT c = f32[] add(a, b) }\n"
MAX = "most { a = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT c = f32[] maximum(a, b) }\n"


def module_of(body: str, before: str = "") -> Module:
    """Return the module whose entry has these lines; the last one is the root."""
    *lines, last = (line.strip() for line in body.strip().splitlines())
    entry = "\n".join([*lines, last if last.startswith("ROOT") else f"ROOT {last}"])
    return h2g.parse(f"HloModule m\n{before}\nENTRY main {{\n{entry}\n}}\n")


def results(module: Module, arguments: Iterable[Array]) -> list[Array]:
    """Return the module's result leaves, evaluated as written."""
    evaluate = HostEvaluator(module.computations)
    return leaves(evaluate(module.entry_name, [a.copy() for a in arguments]))


def whole_arguments(module: Module) -> list[Array]:
    """Return arguments of small whole numbers, whose products sum exactly in any order."""
    rng = np.random.default_rng(0)
    shapes = [p.shape for p in module.entry.parameters]
    return [rng.integers(-4, 5, s.dims).astype(s.dtype.numpy) for s in shapes]


def rewritten(
    module: Module,
    *passes: Callable[[Module], Module],
    exact: bool = True,
    arguments: Sequence[Array] | None = None,
) -> Module:
    """Return what the passes make of the module, checked: legal, printable, of the same results.

    What the passes have made is not to be changed by them again.
    """
    made = module
    for rewrite in passes:
        made = rewrite(made)
        verify(made)
        assert h2g.parse(format_module(made)) == made
    arguments = arguments or arguments_of(format_module(module))
    if exact:
        assert same_bits(results(made, arguments), results(module, arguments))
    again = made
    for rewrite in passes:
        again = rewrite(again)
    assert format_module(again) == format_module(made)
    return made


def lines(computation: Computation) -> list[str]:
    """Return the instructions as text, without names' marks; the parameters are left out."""
    return [
        format_instruction(i).replace("%", "")
        for i in computation.instructions
        if i.opcode != "parameter"
    ]


def opcodes(computation: Computation) -> list[str]:
    """Return the opcodes in order, without parameters and what every thunk inlines."""
    hidden = ("parameter", "constant", "tuple", "get-tuple-element")
    return [i.opcode for i in computation.instructions if i.opcode not in hidden]
