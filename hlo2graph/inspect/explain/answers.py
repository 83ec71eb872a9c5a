"""The answers to a question about a plan, as text and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hlo2graph.hlo import Module
from hlo2graph.inspect.explain.edges import EdgeWords
from hlo2graph.inspect.explain.find import Place, find
from hlo2graph.inspect.explain.paths import ARTEFACTS, path, unordered_with
from hlo2graph.inspect.figures import bytes_text, plural
from hlo2graph.program.plan import Plan
from hlo2graph.program.stats import critical_path
from hlo2graph.program.text.numbering import Numbered
from hlo2graph.program.text.plan import kind_of
from hlo2graph.program.thunks import Edge, Sequence, Slice, While
from hlo2graph.program.uses import nested

SCHEMA = {"name": "hlo2graph.explain", "version": 1}
MOST_NAMED = 12  # thunks in one list


@dataclass(frozen=True, slots=True)
class Answer:
    """Lines to print, and what `explain --json` gives."""

    lines: tuple[str, ...]
    json: dict[str, Any]

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def explain_pair(plan: Plan, first: str, second: str, module: Module | None = None) -> Answer:
    """Say why one of two thunks runs before the other, or that neither does.

    Thunks of different loops and branches are ordered as what holds them is. Raises InputError for
    names that no thunk has; `module` is what the plan was made of, if it is known.
    """
    a, b = find(plan, first, module), find(plan, second, module)
    level = _parting(a, b)
    if level is None or a.labels[:level] != b.labels[:level]:
        return _apart(plan, a, b, level)
    one, other = sorted((a, b), key=lambda place: place.way[level][1])
    numbered = one.way[level][0]
    sequence, start = numbered.sequence, numbered.first
    edges = path(sequence, one.way[level][1] - start, other.way[level][1] - start)
    intro = [*_held(one, level), *_held(other, level)]
    if edges is None:
        return _unordered(plan, one, other, level, intro)
    words = EdgeWords(plan, module.tables if module else "")
    names = one.at(level).name, other.at(level).name
    lines = [*intro, f"{names[0]} runs before {names[1]}, by {plural(len(edges), 'edge')}:"]
    for edge in edges:
        lines += [f"  {line}" for line in words.lines(sequence, edge)]
    lines.append(_judged(edges))
    found = [words.json(sequence, edge) for edge in edges]
    return Answer(
        tuple(lines), answer_json(plan, "pair", ordered=True, before=names[0], path=found)
    )


def explain_critical_path(plan: Plan, tables: str = "") -> Answer:
    """List the thunks of a longest path, and what orders each behind the one before."""
    sequence, words = plan.body, EdgeWords(plan, tables)
    chain = critical_path(sequence)
    joined = {(edge.src, edge.dst): edge for edge in sequence.edges}
    lines = [f"{plan.name}: the longest path has {plural(len(chain), 'thunk')}"]
    edges = []
    thunks = sequence.thunks
    named = {at: f"t{at} {kind_of(thunks[at])} {thunks[at].name}" for at in chain}
    width = max(map(len, named.values()), default=0)
    for before, at in zip((None, *chain), chain, strict=False):
        why = ""
        if before is not None:
            edge = joined[before, at]
            edges.append(edge)
            why = f"   {words.bytes(sequence, edge)}"
        lines.append(f"  {named[at]:{width}}{why}".rstrip())
    if edges:
        lines.append(_judged(tuple(edges)))
    found = [words.json(sequence, edge) for edge in edges]
    names = [sequence.thunks[at].name for at in chain]
    return Answer(tuple(lines), answer_json(plan, "critical-path", thunks=names, path=found))


def explain_false_edges(plan: Plan, tables: str = "") -> Answer:
    """List the edges that the program does not ask for, each with what being rid of it costs."""
    words = EdgeWords(plan, tables)
    lines: list[str] = []
    found = []
    for where, sequence in _sequences(plan.body, ""):
        for edge in sequence.edges:
            if edge.hazard in ARTEFACTS:
                first, *more = words.lines(sequence, edge)
                lines += [f"  {where}{first}", *(f"  {line}" for line in more)]
                found.append({"in": where.rstrip(": "), **words.json(sequence, edge)})
    total = sum(edge["cost_bytes"] for edge in found)
    head = f"{plan.name}: {plural(len(found), 'edge')} that the program does not ask for"
    if total:
        head += f"; places of their own would take at most {bytes_text(total)} more"
    return Answer((head, *lines), answer_json(plan, "false-edges", edges=found, cost_bytes=total))


def answer_json(plan: Plan, question: str, **answer: object) -> dict[str, Any]:
    """Return the head that all answers have, and `answer`."""
    return {"schema": SCHEMA, "module": plan.name, "question": question, **answer}


def _parting(a: Place, b: Place) -> int | None:
    """Return the first level at which they are different thunks, None where one holds the other.

    They are of one sequence there if the labels up to it are the same.
    """
    pairs = enumerate(zip(a.way, b.way, strict=False))
    return next((level for level, (one, other) in pairs if one[1] != other[1]), None)


def _apart(plan: Plan, a: Place, b: Place, level: int | None) -> Answer:
    """Answer for one thunk, for one inside the other, and for two parts of one loop or branch."""
    outer, inner = sorted((a, b), key=lambda place: len(place.way))
    if a.id == b.id:
        line = f"both are in one thunk: t{a.id} {a.name}"
    elif level is None:
        line = f"{inner.name} runs inside {outer.name}"
    else:
        holder, label, other = a.at(level - 1), a.labels[level - 1], b.labels[level - 1]
        line = f"{a.name} and {b.name} are in two branches of {holder.name}, of which one runs"
        if isinstance(holder, While):
            early, late = (a, b) if label == "condition" else (b, a)
            assert {label, other} == {"condition", "body"}
            line = f"{early.name} runs before {late.name}: the condition before each round"
    return Answer((line,), answer_json(plan, "pair", ordered=None, before=None, path=[]))


def _held(place: Place, level: int) -> Iterator[str]:
    if len(place.way) > level + 1:
        yield f"{place.name} runs inside {place.at(level).name}."


def _unordered(plan: Plan, one: Place, other: Place, level: int, intro: list[str]) -> Answer:
    numbered = one.way[level][0]
    names = [place.at(level).name for place in (one, other)]
    lines = [*intro, f"{names[0]} and {names[1]} are unordered: they may run at the same time."]
    beside = {}
    for place, name in zip((one, other), names, strict=True):
        with_ = _overlaps(numbered, place.way[level][1])
        beside[name] = with_
        more = "" if len(with_) <= MOST_NAMED else f" and {len(with_) - MOST_NAMED} more"
        lines.append(f"  {name} may overlap with {', '.join(with_[:MOST_NAMED])}{more}")
    return Answer(
        tuple(lines),
        answer_json(plan, "pair", ordered=False, before=None, path=[], overlaps=beside),
    )


def _overlaps(numbered: Numbered, id: int) -> list[str]:
    sequence = numbered.sequence
    return [sequence.thunks[k].name for k in unordered_with(sequence, id - numbered.first)]


def _judged(edges: tuple[Edge, ...]) -> str:
    false = sum(edge.hazard in ARTEFACTS for edge in edges)
    if not false:
        return "The program itself asks for this order."
    return (
        f"{plural(false, 'edge')} of these the program does not ask for: without, this path would "
        "not order them."
    )


def _sequences(sequence: Sequence[Slice], where: str) -> Iterator[tuple[str, Sequence[Slice]]]:
    yield where, sequence
    for thunk in sequence.thunks:
        for label, inner in nested(thunk):
            yield from _sequences(inner, f"in {thunk.name}/{label}: ")
