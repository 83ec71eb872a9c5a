"""What is slow and the same for many elements is computed once, by a kernel of its own.

A group takes in what makes its operands while memory takes longer than its work. A quotient of each
feature is then computed for all places of all images: nothing by the cost rule, but waited for.
Before groups merge, such are taken out, with the small arrays that only they need: together they
mostly find a place among kernels that are as small.

The rule, all of it: what a broadcast spreads to more than MANY elements each, and what it is made
of in the group, of at most SMALL elements and folding nothing, if that saves LAUNCH_NS; or if it
saves anything, and is made of a fold along columns: the kernel that ends the fold takes it in. What
no fold's kernel has taken in by the end of all merging is put back, by the same rule without that;
and so is all of it, where kernels would be more than by that rule alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from hlo2graph.ops.region import Columns, Loop
from hlo2graph.passes.figures import LAUNCH_NS, STEPS_EACH_NS
from hlo2graph.passes.fusion.body import VIEWS
from hlo2graph.passes.fusion.group import Group, Judge

MANY = 64
SMALL = 1 << 16
SLOW = 8  # the weight of a quotient or a root
_SMALL_ENDS = Columns | Loop  # of folds that take in what is made of their results alone


def taken_apart(
    judge: Judge, groups: Sequence[Group], lone: Set[str] = frozenset()
) -> tuple[Group, ...]:
    """Return the groups without such, and those of such; of `lone` ones, what saves a launch."""
    made: dict[str, Group] = {}
    kept = []
    for group in groups:
        found = {name: _behind(judge, name, group.members) for name in _spread(judge, group)}
        slow = {n for n, members in found.items() if _saves(judge, group, members, n in lone)}
        rest = judge.whole(_needed(judge, group, slow), group.results) if slow else group
        if rest.region is not None:
            made |= {name: judge.whole(found[name], (name,)) for name in slow}
            group = rest
        kept.append(group)
    results = {name for group in groups for name in group.results}
    added = [group for name, group in made.items() if name not in results]
    judge.apart = frozenset(made)
    return (*kept, *added)


def left_alone(judge: Judge, groups: Sequence[Group]) -> frozenset[str]:
    """Return what was taken apart and is, after all merging, in a kernel that folds nothing."""
    plain = (g for g in groups if not any(judge.facts[name].is_hero for name in g.members))
    return judge.apart.intersection(name for group in plain for name in group.results)


def _spread(judge: Judge, group: Group) -> Iterator[str]:
    """Yield what broadcasts of a group spread, behind views of it."""
    body, facts = judge.body, judge.facts
    for name in group.members:
        if body[name].opcode != "broadcast":
            continue
        source = body[name].operands[0]
        while body[source].opcode in VIEWS and source in group.members:
            source = body[source].operands[0]
        if source in group.members and source not in group.results and facts[source].has_work:
            yield source


def _behind(judge: Judge, name: str, members: Set[str]) -> frozenset[str]:
    """Return `name` and what it is made of among `members`."""
    found, waiting = {name}, [name]
    while waiting:
        for operand in judge.body[waiting.pop()].operands:
            if operand in members and operand not in found:
                found.add(operand)
                waiting.append(operand)
    return frozenset(found)


def _saves(judge: Judge, group: Group, members: Set[str], is_lone: bool) -> bool:
    """Tell whether to compute these once saves more than a launch takes."""
    work = 0
    for name in members:
        facts, elements = judge.facts[name], group.sheet.needed(name)[0]
        if facts.elements > SMALL or facts.is_fold or facts.is_hero:
            return False
        if facts.weight >= SLOW and elements > MANY * facts.elements:
            work += elements * facts.weight
    least = 0 if not is_lone and _is_of_columns(judge, members) else LAUNCH_NS
    return work // STEPS_EACH_NS > least


def _is_of_columns(judge: Judge, members: Set[str]) -> bool:
    """Tell whether these are made of a fold that ends in a kernel of small arrays."""
    body = judge.body
    for name in {o for member in members for o in body[member].operands}.difference(members):
        source = name
        while body[source].opcode in VIEWS:
            source = body[source].operands[0]
        if body[source].opcode == "reduce" and isinstance(judge.alone(source).region, _SMALL_ENDS):
            return True
    return False


def _needed(judge: Judge, group: Group, apart: Set[str]) -> frozenset[str]:
    """Return the members that the results are made of, if what is `apart` is there."""
    found: set[str] = set()
    waiting = list(group.results)
    while waiting:
        name = waiting.pop()
        if name in group.members and name not in found and name not in apart:
            found.add(name)
            waiting += judge.body[name].operands
    return frozenset(found)
