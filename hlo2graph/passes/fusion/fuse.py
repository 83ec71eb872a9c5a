"""Fusion: kernels that pass arrays to each other, or read the same ones, become one.

In and out: a Module of the same meaning, each group of instructions a `fusion`. Groups grow from
consumers to producers (fuse_grow), then merge where a value has several readers (fuse_merge). One
cost rule decides throughout (cost.py), and `ops.region` says what one kernel can do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hlo2graph.hlo import Computation, Module
from hlo2graph.ops.effects import with_effects
from hlo2graph.ops.scalar_region import in_any_order
from hlo2graph.passes.fusion.apart import left_alone, taken_apart
from hlo2graph.passes.fusion.body import Body, keeps_arguments
from hlo2graph.passes.fusion.group import Group, Judge
from hlo2graph.passes.fusion.grow import Growth
from hlo2graph.passes.fusion.merge import Merging
from hlo2graph.passes.fusion.rewrite import Rewriting
from hlo2graph.passes.fusion.why import Decisions, attended, decisions_of
from hlo2graph.passes.join import Joiner
from hlo2graph.passes.loops.carried import carried_states
from hlo2graph.passes.sequences import sequences


def fuse(module: Module) -> Module:
    """Return `module` with fusions formed in every computation that becomes thunks."""
    fused = {f.computation.name: f for f in _fused(module)}
    computations: dict[str, Computation] = {}
    for name, computation in module.computations.items():
        if name in fused:
            computations |= fused[name].rewriting.fusions
            computation = fused[name].computation
        computations[name] = computation
    return replace(module, computations=computations)


def fusion_decisions(module: Module) -> tuple[Decisions, ...]:
    """Return what `fuse` decides, and why, for every computation that becomes thunks."""
    return tuple(
        decisions_of(name, f.merging, f.rewriting.named, attended(module, name))
        for f in _fused(module)
        for name in (f.computation.name,)
    )


@dataclass(frozen=True, slots=True)
class _Fused:
    """A computation with its fusions, and how it came to them."""

    computation: Computation
    merging: Merging
    rewriting: Rewriting


def _fused(module: Module) -> Iterator[_Fused]:
    stepped = sequences(module)
    effects = with_effects(module.computations)
    exact = in_any_order(module.computations)
    joiner = Joiner.of(module)
    states = carried_states(module)
    for name, computation in module.computations.items():
        if name in stepped:
            carried = states.get(name, {})
            given = computation.parameters if keeps_arguments(module, computation) else ()
            kept = frozenset(parameter.name for parameter in given)
            body = Body.of(computation, effects, carried, kept, exact)
            judge = Judge(body)
            growth = Growth(body, judge)
            merging = _merged(body, judge, growth)
            groups = merging.groups()
            rewriting = Rewriting(body, joiner)
            yield _Fused(rewriting.run(groups, effects), merging, rewriting)


def _merged(body: Body, judge: Judge, growth: Growth) -> Merging:
    """Return the merging of grown groups and of what is taken out of them."""
    grown = growth.run()
    found = _merging(body, judge, growth, grown, frozenset())
    taken = judge.apart
    if lone := left_alone(judge, found.groups()):
        found = _merging(body, judge, growth, grown, lone)
    kept = judge.apart
    if kept.difference(lone):
        without = _merging(body, judge, growth, grown, taken)
        if len(without.groups()) < len(found.groups()):
            return without
        judge.apart = kept
    return found


def _merging(
    body: Body, judge: Judge, growth: Growth, grown: tuple[Group, ...], lone: frozenset[str]
) -> Merging:
    found = Merging.of(body, judge, taken_apart(judge, grown, lone), growth.stays)
    found.run()
    return found
