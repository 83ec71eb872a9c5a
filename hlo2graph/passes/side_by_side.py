"""Join small independent kernels: what starts at one time becomes one launch.

In and out: a Module of the same meaning. A graph's launch costs the host about a microsecond for
each kernel that may start at once, and each small kernel costs a chain almost as much. Joined
kernels are a `fusion` of fusions, a part each, under a tuple; the rule, all of it:

- Parts have equal depth: as many kernels before them, on the longest way from the parameters. So
  none waits for another, and joins made at different depths cannot wait for each other either.
- The longest way through the computation, in the times of `kernel_time`, is never lengthened: what
  the slowest part waits for, the longest part, and what follows the part with most behind it.
- Together they have at most MOST_BLOCKS blocks of threads, about one wave of a large device; more
  would only queue.
- Together they have at most MOST_LEAVES operands and results: a kernel's parameters are 4 KB.
- No part makes the next state of a loop that another part reads: the state would take a copy. Nor
  what takes the place of an argument given up, if such arguments are large in all.
- Nothing with side effects or control dependencies takes part, nor what a library computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hlo2graph.hlo import Computation, Instruction, Module
from hlo2graph.ops.effects import with_effects
from hlo2graph.passes.join import Joiner, controls, joined, waits_of
from hlo2graph.passes.kernel_time import Estimate, estimate
from hlo2graph.passes.loops.carried import carried_states
from hlo2graph.passes.sequences import sequences

MOST_BLOCKS = 512
MOST_LEAVES = 480
MOST_PARTS = 64  # so that a kernel of parts that all differ stays compilable
OPEN_GROUPS = 8  # of one depth that a part is offered to


def side_by_side(module: Module) -> Module:
    """Return `module` with small independent kernels joined, in all that becomes thunks."""
    stepped = sequences(module)
    effects = with_effects(module.computations)
    joiner = Joiner.of(module)
    computations: dict[str, Computation] = {}
    states = carried_states(module)
    changed = False
    for name, computation in module.computations.items():
        if name in stepped:
            carried = states.get(name, {})
            groups = _Levels(computation, module.computations, effects, carried).groups()
            if groups:
                changed = True
                added, computation = joined(computation, groups, joiner, effects)
                computations |= added
        computations[name] = computation
    return replace(module, computations=computations) if changed else module


@dataclass(slots=True)
class _Group:
    """Instructions of one depth that may become one kernel, and what decides for more of them."""

    parts: list[Instruction] = field(default_factory=list)
    blocks: int = 0
    head: int = 0
    time: int = 0
    tail: int = 0
    results: int = 0
    operands: set[str] = field(default_factory=set)
    states: set[str] = field(default_factory=set)  # of a loop, of which parts make the next

    def add(
        self, instr: Instruction, spent: Estimate, head: int, tail: int, states: set[str]
    ) -> None:
        """Take one more part, which makes the next of `states`."""
        self.parts.append(instr)
        self.states |= states
        self.blocks += spent.blocks
        self.head, self.tail = max(self.head, head), max(self.tail, tail)
        self.time = max(self.time, spent.time)
        self.results += instr.shape.leaf_count
        self.operands.update(instr.operands)

    def leaves(self, instr: Instruction, states: set[str]) -> bool:
        """Tell whether no part would overwrite a loop's state that another reads.

        The state would take a copy, which is another launch.
        """
        return self.operands.isdisjoint(states) and self.states.isdisjoint(instr.operands)

    def takes(self, instr: Instruction, spent: Estimate, head: int, tail: int, most: int) -> bool:
        """Tell whether the rule allows one more part; `most` is the longest way that may be."""
        whole = max(self.head, head) + max(self.time, spent.time) + max(self.tail, tail)
        leaves = len(self.operands.union(instr.operands)) + self.results + instr.shape.leaf_count
        return (
            whole <= most
            and self.blocks + spent.blocks <= MOST_BLOCKS
            and leaves <= MOST_LEAVES
            and len(self.parts) < MOST_PARTS
        )


class _Levels:
    """The instructions of one computation by depth, with the time before and behind each."""

    def __init__(
        self,
        computation: Computation,
        computations: Mapping[str, Computation],
        effects: frozenset[str],
        carried: Mapping[str, str],
    ) -> None:
        self._computation = computation
        self._states: dict[str, set[str]] = {}
        for result, state in carried.items():
            made = computation[result]
            maker = made.operands[0] if made.opcode == "get-tuple-element" else result
            self._states.setdefault(maker, set()).add(state)
        self._before = waits_of(computation.instructions, effects)
        self._spent = {i.name: estimate(i, computation, computations) for i in self._all}
        self._held = {name for i in self._all if controls(i) for name in (i.name, *controls(i))}
        self._depth: dict[str, int] = {}
        self._ends: dict[str, int] = {}  # when what is joined so far has each result
        self._heads: dict[str, int] = {}
        for instr in self._all:
            before = self._before[instr.name]
            self._depth[instr.name] = max(
                (self._depth[o] + (self._spent[o].time > 0) for o in before), default=0
            )
        self._tails = self._tails_of()

    @property
    def _all(self) -> tuple[Instruction, ...]:
        return self._computation.instructions

    def groups(self) -> list[list[Instruction]]:
        """Return the instructions to join, each list into one kernel."""
        for instr in self._all:
            self._start(instr)
        most = max(self._ends.values(), default=0)
        found: list[list[Instruction]] = []
        levels: dict[int, list[Instruction]] = {}
        for instr in self._all:
            levels.setdefault(self._depth[instr.name], []).append(instr)
        for depth in sorted(levels):
            for instr in levels[depth]:
                self._start(instr)
            groups = [g for g in self._level(levels[depth], most) if len(g.parts) > 1]
            for group in groups:
                self._ends.update((i.name, group.head + group.time) for i in group.parts)
            found += [group.parts for group in groups]
        return found

    def _level(self, instrs: Iterable[Instruction], most: int) -> list[_Group]:
        """Offer each small kernel of one depth to groups: those with the longest ways first."""
        small = [i for i in instrs if self._spent[i.name].joins and i.name not in self._held]
        small.sort(key=lambda i: -(self._ends[i.name] + self._tails[i.name]))
        groups: list[_Group] = []
        for instr in small:
            about = (self._spent[instr.name], self._heads[instr.name], self._tails[instr.name])
            open_ = groups[-OPEN_GROUPS:]
            states = self._states.get(instr.name, set())
            group = next(
                (g for g in open_ if g.leaves(instr, states) and g.takes(instr, *about, most)), None
            )
            if group is None:
                groups.append(group := _Group())
            group.add(instr, *about, states)
        return groups

    def _start(self, instr: Instruction) -> None:
        """Learn when an instruction starts and ends, from those before it."""
        before = self._before[instr.name]
        head = max((self._ends[o] for o in before), default=0)
        self._heads[instr.name] = head
        self._ends[instr.name] = head + self._spent[instr.name].time

    def _tails_of(self) -> dict[str, int]:
        """Return the time of the longest way behind each instruction."""
        tails = dict.fromkeys(self._spent, 0)
        for instr in reversed(self._all):
            whole = self._spent[instr.name].time + tails[instr.name]
            for name in self._before[instr.name]:
                tails[name] = max(tails[name], whole)
        return tails
