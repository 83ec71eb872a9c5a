"""What the driver makes dear about launching a graph, and how its nodes are laid out to avoid it.

Each node that may start at once costs cuGraphLaunch about 1 us on the host and about as much on the
device; a node that follows another costs neither (measured: tests/gpu/experiments.py). So a graph
begins with one node wherever that delays nothing that matters:

- where one source alone has the longest way to the end, the others come behind it; but where that
  takes many steps, as a sort does, most of the device may be idle meanwhile: other kernels start at
  once then, behind a start node if that leaves very many;
- where two have, a light source (a fill, a small elementwise kernel) comes where it is needed, side
  by side with what its reader waits for besides: behind a start node it costs more than in a chain;
- where three sources or more are left to start, all come behind a start node, a kernel that
  does nothing;
- nodes are added in order of the way that is left behind them, so that the longest starts first.

These edges are the launch's, not the plan's, and only the outermost sequence has them: inside a
loop's body they measured no better. A chain has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # steps need CUDA's bindings; drawing a graph, which needs the order, does not
    from hlo2graph.backends.cuda.steps import StepSequence

FEWEST_SOURCES = 3  # from which a start node earns its own time
FEWEST_BESIDE = 4  # the same beside one that takes many steps
LIGHT_BYTES = 1 << 18  # that a copy or a fill moves in no more time than it takes to start


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """A sequence as its nodes are added, and whether a start node comes before its sources."""

    sequence: StepSequence
    has_start: bool


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """The same by position: predecessors[k] are places in `order`, for the node at order[k]."""

    order: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    has_start: bool


def launch_order(sequence: StepSequence) -> LaunchOrder:
    """Return the order in which to add the nodes of `sequence`, and what to put in front."""
    found = node_order(sequence.predecessors, [step.weight for step in sequence.steps])
    steps = tuple(sequence.steps[k] for k in found.order)
    ordered = replace(sequence, steps=steps, predecessors=found.predecessors)
    return LaunchOrder(ordered, found.has_start)


class Weight(Enum):
    """What a node is to others that start with it."""

    LIGHT = "no other node takes less time"
    KERNEL = "a kernel"
    LONG = "a kernel that takes many steps"
    OTHER = "a copy, a loop, what takes all of memory or of the device"


def node_order(predecessors: Sequence[tuple[int, ...]], weights: Sequence[Weight]) -> NodeOrder:
    """Return the order for nodes of which node k waits for predecessors[k], all before it."""
    heights = _heights(predecessors)
    order = sorted(range(len(heights)), key=lambda k: (-heights[k], k))
    position = {k: at for at, k in enumerate(order)}
    before = [tuple(sorted(position[p] for p in predecessors[k])) for k in order]
    sources = [at for at, waits in enumerate(before) if not waits]
    longest = [at for at in sources if heights[order[at]] == heights[order[0]]]
    weighed, fewest = [weights[k] for k in order], FEWEST_SOURCES
    if len(longest) == 1:
        is_long = weighed[sources[0]] is Weight.LONG
        fewest = FEWEST_BESIDE if is_long else FEWEST_SOURCES
        for source in sources[1:]:
            if not is_long or weighed[source] not in (Weight.KERNEL, Weight.LONG):
                before[source] = (sources[0],)
    elif len(longest) < FEWEST_SOURCES <= len(sources):
        _put_off(before, [weight is Weight.LIGHT for weight in weighed])
    has_start = sum(not waits for waits in before) >= fewest
    return NodeOrder(tuple(order), tuple(before), has_start)


def _put_off(before: list[tuple[int, ...]], light: Sequence[bool]) -> None:
    """Let each light source wait for what lies two before its first reader, where something does.

    What the reader waits for besides then runs at the same time, so that no way gets longer.
    """
    readers: list[int | None] = [None] * len(before)
    for at in reversed(range(len(before))):
        for waited in before[at]:
            readers[waited] = at
    for at, reader in enumerate(readers):
        if reader is None or before[at] or not light[at]:
            continue
        if earlier := {e for beside in before[reader] if beside != at for e in before[beside]}:
            before[at] = (max(earlier),)


def _heights(predecessors: Sequence[tuple[int, ...]]) -> list[int]:
    """Return, for each node, the nodes on the longest way from it to the end."""
    heights = [1] * len(predecessors)
    for k in reversed(range(len(heights))):
        for p in predecessors[k]:
            heights[p] = max(heights[p], heights[k] + 1)
    return heights
