"""A Plan as thunk-sequence text, which `frontend.parse_plan` reads back: parse(print(p)) == p.

    ThunkSequence NAME, version=1, target=host, fuse=none, schedule=concurrent
    arena 256, lower_bound=256, sum=512
    allocation 0: 64, parameter 0, x
    allocation 1: 256, temp
    parameter 0: x, f32[16], 0[0:64]
    result 0: y, f32[16], 2[0:64]
    %double (p: f32[16]) -> f32[16] { ... }           HLO computations, as anywhere
    t0: kernel double.1, calls=%double, reads={0[0:64]}, writes={1[0:64]}
    t1: while loop, state={1[0:64]}, predicate=1[64:65] { condition { ... } body { ... } }
    edge t0 -> t1, raw 1[0:64]

An edge shows the longest run of bytes that its hazard is about; `explain` lists the others too.
Grammar and checks are in grammars/thunks.lark and frontend/thunks/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import assert_never

from hlo2graph.hlo.printer import format_computation, format_literal
from hlo2graph.program.plan import Allocation, AllocationKind, Plan
from hlo2graph.program.text.numbering import Numbered, number
from hlo2graph.program.thunks import (
    Collective,
    Computing,
    Conditional,
    Copy,
    Fill,
    Kernel,
    Library,
    Sequence,
    Slice,
    Thunk,
    While,
)
from hlo2graph.program.uses import nested

VERSION = 1
BARE_NAME = re.compile(r"[A-Za-z_][\w./\-]*", re.ASCII)
BRACED = re.compile(
    r'\{(?:[^{}"]++|"(?:[^"\\\n]|\\.)*+"|\{(?:[^{}"]++|"(?:[^"\\\n]|\\.)*+"|\{[^{}"]*+\})*+\})*+\}'
)


def format_plan(plan: Plan) -> str:
    """Return the plan as text."""
    blocks: list[Iterable[str]] = [_head(plan), _memory(plan), _surface(plan)]
    blocks += [(format_computation(c).rstrip(),) for c in plan.computations.values()]
    blocks.append(_sequence(number(plan.body), ""))
    return "\n\n".join(block for lines in blocks if (block := "\n".join(lines))) + "\n"


def format_name(name: str) -> str:
    """Return `name`, quoted where the grammar needs it to be."""
    return name if BARE_NAME.fullmatch(name) else json.dumps(name)


def kind_of(thunk: Thunk[Slice]) -> str:
    """Return the word for a thunk's kind: kernel, while, ..."""
    return type(thunk).__name__.lower()


def _head(plan: Plan) -> Iterator[str]:
    settings = f"target={plan.target}, fuse={plan.fuse}, schedule={plan.schedule}"
    edges = "" if _has_edges(plan.body) or not plan.body.thunks else ", edges=none"
    yield f"ThunkSequence {format_name(plan.name)}, version={VERSION}, {settings}{edges}"


def _memory(plan: Plan) -> Iterator[str]:
    sizes = plan.arena
    yield f"arena {sizes.size}, lower_bound={sizes.lower_bound}, sum={sizes.sum}"
    numbers: dict[int, int] = {}
    for position, bound in enumerate(plan.inputs):
        numbers.setdefault(bound.slice.allocation, position)
    for index, allocation in enumerate(plan.allocations):
        yield f"allocation {index}: {_allocation(allocation, numbers.get(index))}"


def _allocation(allocation: Allocation, parameter: int | None) -> str:
    kind: str = allocation.kind
    if allocation.kind is AllocationKind.PARAMETER and parameter is not None:
        kind = f"{kind} {parameter}"
    parts = [str(allocation.size), kind]
    if allocation.owner:
        parts.append(format_name(allocation.owner))
    if allocation.literal is not None:
        literal = allocation.literal
        parts.append(f"{literal.shape} constant({format_literal(literal)})")
    return ", ".join(parts)


def _surface(plan: Plan) -> Iterator[str]:
    """Yield what the caller sees: parameters, results, aliases."""
    assert plan.body.params == tuple(b.slice for b in plan.inputs)
    assert plan.body.results == tuple(b.slice for b in plan.outputs)
    for word, ports in (("parameter", plan.inputs), ("result", plan.outputs)):
        for position, port in enumerate(ports):
            yield f"{word} {position}: {format_name(port.name)}, {port.shape}, {port.slice}"
    for remark in plan.aliases:
        yield f"alias {json.dumps(remark)}"


def _sequence(numbered: Numbered, indent: str) -> Iterator[str]:
    for id, thunk in numbered:
        line = f"{indent}t{id}: {', '.join(_parts(thunk))}"
        held = numbered.nested(id)
        if not held:
            yield line
            continue
        yield f"{line} {{"
        for label, inner in held:
            results = _branch_results(thunk, inner.sequence)
            yield f"{indent}  {label}{results} {{"
            yield from _sequence(inner, f"{indent}    ")
            yield f"{indent}  }}"
        yield f"{indent}}}"
    first = numbered.first
    for edge in numbered.sequence.edges:
        used = f" {edge.slice}" if edge.slice is not None else ""
        ends = f"t{first + edge.src} -> t{first + edge.dst}"
        yield f"{indent}edge {ends}, {edge.hazard}{used}"


def _parts(thunk: Thunk[Slice]) -> Iterator[str]:
    """Yield kind and name, then the attributes."""
    yield f"{kind_of(thunk)} {format_name(thunk.name)}"
    match thunk:
        case Kernel() | Library() | Collective():
            yield from _call(thunk)
        case Copy():
            yield f"from={thunk.source}"
            yield f"to={thunk.target}"
        case Fill():
            yield f"to={thunk.target}"
            yield f"bytes={{{thunk.pattern.hex(' ')}}}"
        case While():
            yield from _while(thunk)
        case Conditional():
            yield f"selector={thunk.selector}"
            yield f"results={_slices(thunk.results)}"
        case _:
            assert_never(thunk)
    if thunk.after:
        yield f"control-predecessors={{{', '.join(map(format_name, thunk.after))}}}"
    if thunk.metadata:
        yield f"metadata={_metadata(thunk.metadata)}"


def _metadata(text: str) -> str:
    """Return HLO's braces as they are, and quoted what would not be one token on one line."""
    plain = BRACED.fullmatch(text) and "\n" not in text and "/*" not in text
    return text if plain else json.dumps(text)


def _call(thunk: Computing[Slice]) -> Iterator[str]:
    yield f"calls=%{thunk.computation}"
    yield f"reads={_slices(thunk.reads)}"
    yield f"writes={_slices(thunk.writes)}"
    if isinstance(thunk, Library) and thunk.workspace:
        yield f"workspace={_slices(thunk.workspace)}"
    if isinstance(thunk, Kernel) and thunk.effect:
        yield "effect=true"


def _while(thunk: While[Slice]) -> Iterator[str]:
    """Yield what a loop adds to its nested sequences: they share one slice a leaf of state."""
    body, condition = thunk.body, thunk.condition
    state = thunk.inits
    assert state == thunk.results == body.params == body.results == condition.params
    (predicate,) = condition.results
    yield f"state={_slices(state)}"
    yield f"predicate={predicate}"
    if thunk.trip_count is not None:
        yield f"trip_count={thunk.trip_count}"


def _branch_results(thunk: Thunk[Slice], branch: Sequence[Slice]) -> str:
    """Return where a branch leaves its results, if not where the conditional has them."""
    if isinstance(thunk, Conditional) and branch.results != thunk.results:
        return f", results={_slices(branch.results)}"
    return ""


def _slices(slices: tuple[Slice, ...]) -> str:
    return "{" + ", ".join(map(str, slices)) + "}"


def _has_edges(sequence: Sequence[Slice]) -> bool:
    return bool(sequence.edges) or any(
        _has_edges(inner) for thunk in sequence.thunks for _, inner in nested(thunk)
    )
