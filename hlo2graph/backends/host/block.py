"""Blocks: sequences made ready to run, and the orders in which one thread walks them.

A step takes the walk it runs under, so that a loop or conditional walks its own blocks the same
way. Every walk respects `successors`; the pool's walk is in `pool`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Order
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random
from typing import TypeAlias

Walk: TypeAlias = "Callable[[Block], None]"
Step: TypeAlias = Callable[[Walk], None]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The steps of one sequence, in program order, and what orders them.

    successors[i] are the steps that wait for step i; waits[i] counts those that i waits for.
    """

    steps: tuple[Step, ...]
    successors: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]

    @property
    def is_chain(self) -> bool:
        """No two steps may overlap."""
        last = len(self.steps) - 1
        return all(i + 1 in later for i, later in enumerate(self.successors) if i < last)

    def admits(self, order: Order[int]) -> bool:
        """`order` has every step once, each behind all that it waits for."""
        place = {step: at for at, step in enumerate(order)}
        return len(order) == len(place) == len(self.steps) and all(
            src in place and dst in place and place[src] < place[dst]
            for src, later in enumerate(self.successors)
            for dst in later
        )


def in_program_order(block: Block) -> None:
    """Run the steps one after another, as written."""
    for step in block.steps:
        step(in_program_order)


def shuffled(rng: Random) -> Walk:
    """Return a walk that draws a new topological order each time it meets a block."""

    def walk(block: Block) -> None:
        for index in draw_order(block, rng):
            block.steps[index](walk)

    return walk


def draw_order(block: Block, rng: Random) -> list[int]:
    """Return a random topological order of the block's steps.

    Of what is ready, the step with the least key runs. A missing edge shows when the step it
    leads to comes first, so the keys are drawn to make that likely: all at random, or the latest
    step first, or one step as late as possible.
    """
    keys = _draw_keys(len(block.steps), rng)
    waits = list(block.waits)
    ready = [(keys[i], i) for i, count in enumerate(waits) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        _, index = heappop(ready)
        order.append(index)
        for later in block.successors[index]:
            waits[later] -= 1
            if not waits[later]:
                heappush(ready, (keys[later], later))
    assert len(order) == len(block.steps), "edges form a cycle"
    return order


def _draw_keys(count: int, rng: Random) -> list[float]:
    if (kind := rng.randrange(3)) == 0:
        return [float(-i) for i in range(count)]
    keys = [rng.random() for _ in range(count)]
    if kind == 1 and count:
        keys[rng.randrange(count)] = 1.0  # random() stays below
    return keys
