"""Makes what fails as small as it goes while it fails in the same way: modules, and texts.

A module shrinks to one of its values, then loses instructions wherever they are, in the
computations that it calls too. A text loses lines, then tokens, half of them at a time at first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np

from hlo2graph.errors import HloError
from hlo2graph.frontend import verify
from hlo2graph.hlo import Computation, Instruction, Literal, Module, Shape

T = TypeVar("T")
_TOKEN = re.compile(r"[\w.\-]+|\s+|.")
SECONDS = 60  # for each that fails
MOST_WRITTEN = 64  # elements of a constant that stands for an instruction


def shrink(module: Module, fails: Callable[[Module], bool]) -> Module:
    """Return a small module that fails, with all that it does not need left out."""
    return _least(module, smaller, fails)


def shrink_text(text: str, fails: Callable[[str], bool]) -> str:
    """Return a small text that fails: without lines, then without tokens."""
    for parts in (str.splitlines, _TOKEN.findall):
        join = "\n".join if parts is str.splitlines else "".join
        pieces = _least(
            tuple(parts(text)), _without_some, lambda kept, join=join: fails(join(kept))
        )
        text = join(pieces) if len(pieces) < len(parts(text)) else text
    return text


def _least(whole: T, candidates: Callable[[T], Iterator[T]], fails: Callable[[T], bool]) -> T:
    end = time.monotonic() + SECONDS
    found: T | None = whole
    while found is not None:
        whole, found = found, None
        for less in candidates(whole):
            if time.monotonic() > end:
                return whole
            if fails(less):
                found = less
                break
    return whole


def _without_some(pieces: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield what is left without a half, a quarter, ... one of the pieces."""
    size = len(pieces) // 2
    while size:
        for start in range(0, len(pieces), size):
            yield (*pieces[:start], *pieces[start + size :])
        size //= 2


def smaller(module: Module) -> Iterator[Module]:
    """Yield legal modules that lack something, those that lack most first."""
    entry = module.entry
    for instr in entry.instructions:
        if instr.opcode not in ("parameter", "constant") and instr.name != entry.root:
            yield from _legal(module, replace(entry, root=instr.name))
    for computation in reversed(module.computations.values()):
        for instr in reversed(computation.instructions):
            for less in _without(computation, instr):
                yield from _legal(module, less)


def _without(computation: Computation, instr: Instruction) -> Iterator[Computation]:
    """Yield the computation with an operand, or zeros, in the place of an instruction."""
    for operand in instr.operands:
        if computation[operand].shape == instr.shape:
            kept = tuple(_reading(i, {instr.name: operand}) for i in computation.instructions)
            root = operand if computation.root == instr.name else computation.root
            yield replace(computation, instructions=kept, root=root)
    is_plain = instr.opcode not in ("parameter", "constant") and isinstance(instr.shape, Shape)
    if is_plain and instr.shape.elements <= MOST_WRITTEN and instr.shape.dtype.name != "token":
        zeros = np.zeros(instr.shape.dims, instr.shape.dtype.numpy)
        literal = Literal(instr.shape, zeros)
        made = Instruction(instr.name, "constant", instr.shape, payload=literal)
        kept = tuple(made if i is instr else i for i in computation.instructions)
        yield replace(computation, instructions=kept)


def _reading(instr: Instruction, names: Mapping[str, str]) -> Instruction:
    return replace(instr, operands=tuple(names.get(o, o) for o in instr.operands))


def _legal(module: Module, changed: Computation) -> Iterator[Module]:
    """Yield the module with a computation changed and what is then needless gone, if legal."""
    kept = {**module.computations, changed.name: _needed(changed)}
    reached, pending = set[str](), [module.entry_name]
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += [c for i in kept[name].instructions for c in i.called()]
    held = {name: computation for name, computation in kept.items() if name in reached}
    with suppress(HloError):
        yield verify(replace(module, attrs={}, computations=held))


def _needed(computation: Computation) -> Computation:
    wanted = {computation.root}
    for instr in reversed(computation.instructions):
        if instr.name in wanted:
            wanted.update(instr.operands)
            after = instr.attrs.get("control-predecessors", ())
            assert isinstance(after, tuple)
            wanted.update(str(name) for name in after)
    names = (i for i in computation.instructions if i.name in wanted or i.opcode == "parameter")
    return replace(computation, instructions=tuple(names))
