"""What fusion decided, and why: for each kernel, and for each pair of kernels that stayed two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlo2graph.hlo import Module
from hlo2graph.ops.region import SideBySide, region_of
from hlo2graph.passes.fusion.group import Group
from hlo2graph.passes.fusion.merge import Merging, Node


@dataclass(frozen=True, slots=True)
class Member:
    """An instruction of a kernel, and why it is there."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Together:
    """A kernel, by the name it has after fusion, and what it is made of."""

    kernel: str
    form: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Apart:
    """A kernel and one that reads it, and why they are two."""

    producer: str
    reader: str
    why: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """What fusion made of one computation."""

    computation: str
    together: tuple[Together, ...]
    apart: tuple[Apart, ...]


@dataclass(frozen=True, slots=True)
class Why:
    """What fusion decided in a module.

    launches: of a kernel (by computation and name) that runs beside others, the kernel of all.
    """

    decisions: tuple[Decisions, ...]
    launches: Mapping[tuple[str, str], str]


def launches_of(module: Module) -> dict[tuple[str, str], str]:
    """Return which kernel runs each part of those that do several things side by side."""
    found: dict[tuple[str, str], str] = {}
    for computation in module.computations.values():
        for instr in computation.instructions:
            if instr.opcode != "get-tuple-element":
                continue
            whole = computation[instr.operands[0]]
            if whole.opcode == "fusion":
                called = module.computations[next(whole.called())]
                if isinstance(region_of(called), SideBySide):
                    found[computation.name, instr.name] = whole.name
    return found


def decisions_of(computation: str, merging: Merging, named: Mapping[Group, str]) -> Decisions:
    """Return the decisions for a computation whose groups' kernels have these names."""
    groups = [n for n in merging.in_order() if isinstance(n, Group)]
    together = tuple(
        Together(named[group], group.form, tuple(_members(merging, group))) for group in groups
    )
    pairs: dict[tuple[str, str], str] = {}
    for reader in merging.in_order():
        if merging.is_kernel(reader):
            for producer, why in _apart(merging, reader):
                pair = _name(producer, named), _name(reader, named)
                pairs.setdefault(pair, why)
    apart = tuple(Apart(*pair, why) for pair, why in pairs.items())
    return Decisions(computation, together, apart)


def _members(merging: Merging, group: Group) -> Iterator[Member]:
    for name in merging.body.in_order(group.members):
        yield Member(name, group.why[name])


def _apart(merging: Merging, reader: Node) -> Iterator[tuple[Node, str]]:
    """Yield the kernels that `reader` waits for, views looked through, and why they are apart."""
    for value in merging.reads(reader):
        producer = merging.maker[value]
        if merging.is_kernel(producer):
            yield producer, merging.why_apart(producer, reader)
        while isinstance(producer, str) and merging.is_view(producer):
            source = merging.maker[merging.body[producer].operands[0]]
            if merging.is_kernel(source):
                yield source, merging.why_apart(source, reader, producer)
            producer = source


def _name(node: Node, named: Mapping[Group, str]) -> str:
    return named[node] if isinstance(node, Group) else node
