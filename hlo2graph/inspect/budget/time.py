"""How long a plan takes on a device, as a simple model has it.

A thunk starts when the last it waits for has ended, and a node's latency has passed; thunks are
issued one after the other. Then it waits, in that order, until its share of the device is free. A
loop is its rounds one after the other, a conditional the longest of its branches; either fills as
much of the device as what is in it does on average.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from hlo2graph.inspect.budget.cost import Costs, Work
from hlo2graph.program.device_figures import (
    BRANCH_SECONDS,
    ISSUE_SECONDS,
    NODE_SECONDS,
    ROUND_SECONDS,
    Device,
)
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Conditional, Sequence, Slice, Thunk, While

ALL = 1.0 + 1e-9  # of the device, whatever rounding does to the shares


def estimated_seconds(plan: Plan, device: Device) -> float:
    """Return how long one launch of the plan's graph takes."""
    return _Clock(Costs(plan, device)).run(plan.body).seconds


class _Clock:
    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def run(self, sequence: Sequence[Slice]) -> Work:
        """Return how long a sequence takes, and how much of the device it fills on average."""
        works = [self._work(thunk) for thunk in sequence.thunks]
        waits = [0] * len(works)
        leaving: list[list[int]] = [[] for _ in works]
        for edge in sequence.edges:
            waits[edge.dst] += 1
            leaving[edge.src].append(edge.dst)
        seconds = _simulate(works, waits, leaving)
        busy = sum(work.seconds * work.share for work in works)
        return Work(seconds, min(1.0, busy / seconds) if seconds else 0.0)

    def _work(self, thunk: Thunk[Slice]) -> Work:
        match thunk:
            case While():
                rounds = 1 if thunk.trip_count is None else thunk.trip_count
                parts = [self.run(thunk.condition), self.run(thunk.body)]
                each = sum(part.seconds for part in parts) + ROUND_SECONDS
                busy = sum(part.seconds * part.share for part in parts)
                return Work(max(1, rounds) * each, busy / each)
            case Conditional():
                longest = max(map(self.run, thunk.branches), key=lambda work: work.seconds)
                return Work(longest.seconds + BRANCH_SECONDS, longest.share)
            case _:
                return self._costs.of(thunk)


def _simulate(works: list[Work], waits: list[int], leaving: list[list[int]]) -> float:
    """Return when the last thunk has ended."""
    events: list[tuple[float, int, int]] = []  # time; 0 for an end, 1 for an issue; thunk
    queue: deque[int] = deque()
    free, issued, now = ALL, 0.0, 0.0
    left = list(waits)

    def issue(at: int) -> None:
        nonlocal issued
        issued = max(issued + ISSUE_SECONDS, now + NODE_SECONDS)
        heappush(events, (issued, 1, at))

    for at, count in enumerate(waits):
        if not count:
            issue(at)
    while events:
        now, kind, at = heappop(events)
        if kind:
            queue.append(at)
        else:
            free += works[at].share
            for after in leaving[at]:
                left[after] -= 1
                if not left[after]:
                    issue(after)
        while queue and works[queue[0]].share <= free:
            first = queue.popleft()
            free -= works[first].share
            heappush(events, (now + works[first].seconds, 0, first))
    return now
