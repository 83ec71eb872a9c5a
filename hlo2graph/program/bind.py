"""Make the Plan: thunks over values become thunks over slices, with their edges.

A copy whose source and target got one slice does nothing and is dropped. What waited for it by a
control edge then waits for what it would have waited for, and so does what read its target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from hlo2graph.program.buffers import BufferAssignment
from hlo2graph.program.edges import with_edges
from hlo2graph.program.plan import Bound, Plan
from hlo2graph.program.thunks import (
    Collective,
    Conditional,
    Copy,
    Fill,
    Hazard,
    Kernel,
    Library,
    Port,
    Program,
    Sequence,
    Slice,
    Thunk,
    Value,
    While,
)
from hlo2graph.program.uses import reads, writes


def make_plan(
    program: Program, buffers: BufferAssignment, *, target: str, fuse: str, schedule: str
) -> Plan:
    """Return the plan of `program` with its values where `buffers` puts them."""
    slices = buffers.slices
    labels = _labels(program.body, buffers)
    body = with_edges(_Binder(slices).sequence(program.body), labels=labels, schedule=schedule)

    def bound(ports: tuple[Port, ...], values: tuple[Value, ...]) -> tuple[Bound, ...]:
        # The shape is the port's: a result may be a view of the value.
        pairs = zip(ports, values, strict=True)
        return tuple(Bound(port.name, port.shape, slices[value.id]) for port, value in pairs)

    return Plan(
        name=program.name,
        target=target,
        fuse=fuse,
        schedule=schedule,
        allocations=buffers.allocations,
        computations=program.computations,
        inputs=bound(program.inputs, program.body.params),
        outputs=bound(program.outputs, program.body.results),
        body=body,
        arena=buffers.arena,
        aliases=buffers.aliases,
    )


def _labels(
    sequence: Sequence[Value], buffers: BufferAssignment
) -> dict[tuple[str, Slice], Hazard]:
    """Return the labels by thunk and slice; a loop's name stands for all inside it, too."""
    if not buffers.labels:
        return {}
    found: dict[tuple[str, Slice], Hazard] = {}
    for thunk in sequence.thunks:
        for value in writes(thunk):
            if label := buffers.labels.get(value.id):
                found[thunk.name, buffers.slices[value.id]] = label
        for inner in _inside(thunk):
            found |= _labels(inner, buffers)
    return found


def _inside(thunk: Thunk[Value]) -> tuple[Sequence[Value], ...]:
    match thunk:
        case While():
            return (thunk.condition, thunk.body)
        case Conditional():
            return thunk.branches
        case _:
            return ()


class _Binder:
    def __init__(self, slices: Mapping[int, Slice]) -> None:
        self._slices = slices

    def sequence(self, sequence: Sequence[Value]) -> Sequence[Slice]:
        thunks: list[Thunk[Slice]] = []
        writer: dict[int, str] = {}
        dropped: dict[str, tuple[str, ...]] = {}
        inherited: dict[int, tuple[str, ...]] = {}  # a dropped copy's target -> its `after`
        for thunk in sequence.thunks:
            after = dict.fromkeys(n for name in thunk.after for n in dropped.get(name, (name,)))
            for value in reads(thunk) if inherited else ():
                after |= dict.fromkeys(inherited.get(value.id, ()))
            if isinstance(thunk, Copy) and self._one(thunk.source) == self._one(thunk.target):
                # Its source's writer is what others meant by waiting for this copy.
                wrote = (writer[thunk.source.id],) if thunk.source.id in writer else ()
                dropped[thunk.name] = tuple(dict.fromkeys((*after, *wrote)))
                if after:
                    inherited[thunk.target.id] = tuple(after)
                if wrote:
                    writer[thunk.target.id] = wrote[0]
                continue
            writer.update((value.id, thunk.name) for value in writes(thunk))
            thunks.append(self._thunk(thunk, tuple(after)))
        params, results = self._all(sequence.params), self._all(sequence.results)
        return Sequence(tuple(thunks), params, results)

    def _thunk(self, t: Thunk[Value], after: tuple[str, ...]) -> Thunk[Slice]:
        many, more = self._all, (after, t.metadata, t.span)
        match t:
            case Kernel():
                uses = many(t.reads), many(t.writes)
                return Kernel(t.name, t.computation, *uses, after, t.effect, t.metadata, t.span)
            case Library():
                scratch = many(t.workspace)
                return Library(t.name, t.computation, many(t.reads), many(t.writes), scratch, *more)
            case Collective():
                return Collective(t.name, t.computation, many(t.reads), many(t.writes), *more)
            case Copy():
                return Copy(t.name, self._one(t.source), self._one(t.target), *more)
            case Fill():
                return Fill(t.name, t.pattern, self._one(t.target), *more)
            case _:
                return self._node(t, after)

    def _node(
        self, t: While[Value] | Conditional[Value], after: tuple[str, ...]
    ) -> While[Slice] | Conditional[Slice]:
        more = (after, t.metadata, t.span)
        results = self._all(t.results)
        match t:
            case While():
                condition, body = self.sequence(t.condition), self.sequence(t.body)
                inits, count = self._all(t.inits), t.trip_count
                return While(t.name, inits, results, condition, body, count, *more)
            case Conditional():
                branches = tuple(self.sequence(branch) for branch in t.branches)
                return Conditional(t.name, self._one(t.selector), branches, results, *more)
            case _:
                assert_never(t)

    def _one(self, value: Value) -> Slice:
        return self._slices[value.id]

    def _all(self, values: tuple[Value, ...]) -> tuple[Slice, ...]:
        return tuple(self._slices[value.id] for value in values)
