"""Calls that come again with the very arrays of an earlier one: nothing is read anew for them.

The last call's arrays live anyway until another one comes. Of those before it, sets of our own
arrays that take turns are known, while they live: none ever moves. Arrays of JAX's, which can be
deleted, are known of the last call alone.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import call, is_
from typing import Any, NamedTuple

from hlo2graph.backends.cuda.device_array import DeviceArray
from hlo2graph.backends.cuda.ports import Placement
from hlo2graph.backends.cuda.route import Route

SETS = 64  # that take turns


class Known(NamedTuple):
    """A call that may come again; `owners` must live until it has run."""

    args: tuple[object, ...]
    route: Route
    owners: Sequence[object]
    deletable: Sequence[Any]  # the arguments that JAX can delete


class KnownCalls:
    """What is known of the calls of one instance on its own stream."""

    __slots__ = ("_last", "_passes", "_seen", "_sets")

    def __init__(self) -> None:
        self._last: Known | None = None
        self._sets: OrderedDict[tuple[int, ...], _Set] = OrderedDict()  # by arguments' ids
        self._seen: OrderedDict[Placement, None] = OrderedDict()
        self._passes = 0  # of arrays from stream to stream, when these were known

    def find(self, args: tuple[object, ...]) -> Known | None:
        """Return the call that had these very arguments, if all are still as they were."""
        last, self._last = self._last, None
        if self._passes != DeviceArray.passes:  # one of them may be ready elsewhere now
            self._passes = DeviceArray.passes
            self._sets.clear()
            return None
        if last is not None and len(last.args) == len(args) and all(map(is_, last.args, args)):
            if not any(array.is_deleted() for array in last.deletable):
                self._last = last
            return self._last
        known = self._sets.get(tuple(map(id, args))) if self._sets else None
        if known is not None and all(map(is_, map(call, known.refs), args)):
            self._last = Known(args, known.route, args, ())
        return self._last

    def forget_last(self) -> None:
        """Let go of the last call's arrays."""
        self._last = None

    def note(self, known: Known) -> None:
        """Know a call of arrays that stay as they are; its set too, if places come again."""
        self._last = known
        if known.deletable:
            return
        placement = known.route.placement
        if placement not in self._seen:
            self._seen[placement] = None
            if len(self._seen) > SETS:
                self._seen.popitem(last=False)
            return
        refs = list(map(weakref.ref, known.args))
        self._sets[tuple(map(id, known.args))] = _Set(refs, known.route)
        if len(self._sets) > SETS:
            self._sets.popitem(last=False)


class _Set(NamedTuple):
    refs: Sequence[Callable[[], object]]
    route: Route
