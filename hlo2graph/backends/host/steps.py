"""Thunks made into steps: plain functions over views of the arena, prepared once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias, assert_never

import numpy as np

from hlo2graph.backends.host.arena import Arena
from hlo2graph.backends.host.block import Block, Step, Walk
from hlo2graph.backends.host.endless import Watch
from hlo2graph.errors import BackendError
from hlo2graph.hlo import DTYPES, Shape
from hlo2graph.ops.spec import Array, Evaluator, HostValue
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

Compute: TypeAlias = Callable[[Computing[Slice]], Step]
Watched: TypeAlias = Callable[[Thunk[Slice], Step], Step]
PRED, S32 = Shape(DTYPES["pred"]), Shape(DTYPES["s32"])


def as_it_is(_: Thunk[Slice], step: Step) -> Step:
    """Return a thunk's step: nobody watches it."""
    return step


def load(
    sequence: Sequence[Slice], arena: Arena, compute: Compute, watched: Watched = as_it_is
) -> Block:
    """Make a sequence and all nested ones ready to run in `arena`.

    `compute` makes the steps of thunks that run a computation; `evaluated` does so with NumPy.
    `watched` may put something around each step.
    """
    successors: list[list[int]] = [[] for _ in sequence.thunks]
    waits = [0] * len(sequence.thunks)
    for edge in dict.fromkeys((e.src, e.dst) for e in sequence.edges):
        successors[edge[0]].append(edge[1])
        waits[edge[1]] += 1
    return Block(
        tuple(
            _named(thunk.name, watched(thunk, _step(thunk, arena, compute, watched)))
            for thunk in sequence.thunks
        ),
        tuple(tuple(sorted(later)) for later in successors),
        tuple(waits),
    )


def _named(name: str, step: Step) -> Step:
    """Say which thunk it was when a step fails."""

    def run(walk: Walk) -> None:
        try:
            step(walk)
        except MemoryError as error:
            raise BackendError(f"no memory to run {name}") from error
        except Exception as error:
            error.add_note(f"while running {name}")
            raise

    return run


def _step(thunk: Thunk[Slice], arena: Arena, compute: Compute, watched: Watched) -> Step:
    match thunk:
        case Kernel() | Library() | Collective():
            return compute(thunk)
        case Copy():
            return _copy(arena.raw(thunk.source), arena.raw(thunk.target))
        case Fill():
            return _fill(thunk.pattern, arena.raw(thunk.target))
        case While():
            return _while(
                load(thunk.condition, arena, compute, watched),
                arena.view(thunk.condition.results[0], PRED),
                load(thunk.body, arena, compute, watched),
                partial(Watch, thunk, arena),
            )
        case Conditional():
            blocks = [load(b, arena, compute, watched) for b in thunk.branches]
            branches = tuple(
                _branch(branch, block, thunk, arena)
                for branch, block in zip(thunk.branches, blocks, strict=True)
            )
            by_number = thunk.selector.size == S32.size
            selector = arena.view(thunk.selector, S32 if by_number else PRED)
            return (_switch if by_number else _choice)(selector, branches)
        case _:
            assert_never(thunk)


def evaluated(arena: Arena, evaluator: Evaluator) -> Compute:
    """Return what makes steps that run computations by the op table's host rules."""
    return partial(_computing, arena, evaluator)


def _computing(arena: Arena, evaluator: Evaluator, thunk: Computing[Slice]) -> Step:
    computation = evaluator.computations[thunk.computation]
    shapes = [leaf for p in computation.parameters for leaf in p.shape.leaves()]
    sources = [arena.view(r, s) for r, s in zip(thunk.reads, shapes, strict=True)]
    for source in sources:
        source.flags.writeable = False
    results = computation.result.shape.leaves()
    targets = [arena.view(w, s) for w, s in zip(thunk.writes, results, strict=True)]
    name = thunk.computation
    if len(targets) == 1:
        return _one_result(evaluator, name, sources, targets[0])
    # A result may be a view of an operand whose bytes an earlier result takes over.
    clobbers = any(w.overlaps(r) for w in thunk.writes for r in thunk.reads)
    return _many_results(evaluator, name, sources, targets, clobbers=clobbers)


def _one_result(evaluator: Evaluator, name: str, sources: list[Array], target: Array) -> Step:
    shape, dtype = target.shape, target.dtype

    def step(_: Walk) -> None:
        (result,) = _leaves(evaluator(name, sources))
        assert result.shape == shape, f"{name}: {result.shape} is not {shape}"
        assert result.dtype == dtype, f"{name}: {result.dtype} is not {dtype}"
        target[...] = result

    return step


def _many_results(
    evaluator: Evaluator, name: str, sources: list[Array], targets: list[Array], *, clobbers: bool
) -> Step:
    def step(_: Walk) -> None:
        results = _leaves(evaluator(name, sources))
        if clobbers:
            results = tuple(
                r.copy() if any(np.may_share_memory(r, s) for s in sources) else r for r in results
            )
        for target, result in zip(targets, results, strict=True):
            assert result.shape == target.shape, f"{name}: {result.shape} is not {target.shape}"
            assert result.dtype == target.dtype, f"{name}: {result.dtype} is not {target.dtype}"
            target[...] = result

    return step


def _leaves(value: HostValue) -> tuple[Array, ...]:
    return tuple(_flatten(value)) if isinstance(value, tuple) else (value,)


def _flatten(value: HostValue) -> Iterator[Array]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flatten(part)
    else:
        yield value


def _copy(source: Array, target: Array) -> Step:
    def step(_: Walk) -> None:
        target[...] = source

    return step


def _fill(pattern: bytes, target: Array) -> Step:
    words = np.frombuffer(pattern, f"u{min(len(pattern), 8)}")
    rows = target.view(words.dtype).reshape(-1, len(words))

    def step(_: Walk) -> None:
        rows[...] = words

    return step


def _while(condition: Block, again: Array, body: Block, watch: Callable[[], Watch]) -> Step:
    def step(walk: Walk) -> None:
        seen = watch()
        walk(condition)
        while again[()]:
            seen.turn()
            walk(body)
            walk(condition)

    return step


def _branch(branch: Sequence[Slice], block: Block, thunk: Conditional[Slice], arena: Arena) -> Step:
    """Return a step that runs a branch and puts its results where the conditional's are."""
    ends = [
        (arena.raw(source), arena.raw(target))
        for source, target in zip(branch.results, thunk.results, strict=True)
        if source != target  # only in thunk-sequence text: our own branches leave them in place
    ]

    def step(walk: Walk) -> None:
        walk(block)
        for source, target in ends:
            target[...] = source

    return step


def _choice(selector: Array, branches: tuple[Step, ...]) -> Step:
    def step(walk: Walk) -> None:
        branches[0 if selector[()] else 1](walk)

    return step


def _switch(selector: Array, branches: tuple[Step, ...]) -> Step:
    last = len(branches) - 1

    def step(walk: Walk) -> None:
        index = int(selector[()])
        branches[index if 0 <= index <= last else last](walk)

    return step
