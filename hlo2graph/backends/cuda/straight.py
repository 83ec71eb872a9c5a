"""The commonest call: all arguments are arrays of ours, ready, and used where they lie.

Each array is held against what its parameter takes as any other is, but in no loop of Python's:
what a call with new arrays costs the host is spent here.
"""

from __future__ import annotations

from operator import attrgetter

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.backends.cuda.route import Route, Router
from hlo2graph.program.plan import Plan

_READ = attrgetter("address", "layout", "stream")


class Straight:
    """Finds the routes of such calls of one instance."""

    __slots__ = ("_kinds", "_layouts", "_router", "_streams")

    def __init__(self, plan: Plan, router: Router, stream: Stream) -> None:
        self._router, count = router, len(plan.inputs)
        self._kinds, self._streams = (DeviceArray,) * count, (stream,) * count
        self._layouts = tuple(bound.shape for bound in plan.inputs)

    def route(self, args: tuple[object, ...]) -> Route | None:
        """Return where all lies, None for any other call."""
        if not args or tuple(map(type, args)) != self._kinds:
            return None
        inputs, layouts, streams = zip(*map(_READ, args), strict=True)
        if layouts != self._layouts or streams != self._streams:
            return None
        placement = self._router.straight(inputs)
        return None if placement is None else self._router.straight_route(inputs, placement)
