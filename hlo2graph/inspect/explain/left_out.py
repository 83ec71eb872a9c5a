"""Which thunks a CUDA graph of the plan would not have as nodes of their own, and why."""

from __future__ import annotations

from collections.abc import Iterator

from hlo2graph.backends.cuda.partial.cut import unasked
from hlo2graph.backends.cuda.support import check_support
from hlo2graph.errors import UnsupportedError
from hlo2graph.inspect.captured import Captured
from hlo2graph.inspect.explain.answers import Answer, answer_json
from hlo2graph.inspect.figures import plural
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Slice, Thunk
from hlo2graph.program.uses import walk, writes


def explain_left_out(plan: Plan, capture: str = "all") -> Answer:
    """Say what keeps the plan out of a graph, and which thunks need no node.

    Where `capture` leaves thunks out, list these among the graphs. Raises InputError for a policy
    that is none.
    """
    captured = Captured.of(plan, capture)
    refused = _refused(plan)
    empty = list(_empty(plan))
    total = sum(1 for _ in walk(plan.body))
    if refused:
        head = f"{plan.name} cannot run on cuda, so nothing of it is in a graph:"
    elif captured.alone:
        head = f"{plan.name}, in all {plural(total, 'thunk')}: {captured.head}"
    else:
        head = f"{plan.name}, in all {plural(total, 'thunk')}: one graph"
    lines = [head, *(f"  {line}" for line in refused)]
    if captured.alone and not refused:
        lines += [f"  {line}" for line in captured.lines()]
    lines += [f"  {thunk.name} has no node: it writes no byte" for thunk in empty]
    known = list(_unasked(captured))
    lines += [
        f"  {thunk.name} runs nowhere: the rounds of {loop} are known" for thunk, loop in known
    ]
    names = [thunk.name for thunk in (*empty, *(t for t, _ in known))]
    parted = captured.json()
    found = answer_json(plan, "why-not-graph", refused=refused, without_node=names, **parted)
    return Answer(tuple(lines), found)


def _refused(plan: Plan) -> list[str]:
    try:
        check_support(plan)
    except UnsupportedError as error:
        return [f"{n.span}: {n.message}" if n.span else n.message for n in error.notes]
    return []


def _unasked(captured: Captured) -> Iterator[tuple[Thunk[Slice], str]]:
    """Yield the thunks of conditions that nobody asks, each with its loop's name."""
    for _, part in captured.alone:
        condition = unasked(part.thunk)
        for thunk in () if condition is None else walk(condition):
            if any(w.size for w in writes(thunk)):
                yield thunk, part.thunk.name


def _empty(plan: Plan) -> Iterator[Thunk[Slice]]:
    for thunk in walk(plan.body):
        if not any(w.size for w in writes(thunk)):
            yield thunk
