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


class KnownCalls:
    """What is known of the calls of one instance on its own stream.

    `owners` is what must live until the last one has run.
    """

    __slots__ = ("_args", "_deletable", "_passes", "_route", "_seen", "_sets", "owners")

    def __init__(self) -> None:
        self._args: tuple[object, ...] | None = None  # of the last call, as the next three
        self._route: Route | None = None
        self.owners: Sequence[object] = ()
        self._deletable: Sequence[Any] = ()
        self._sets: OrderedDict[tuple[int, ...], _Set] = OrderedDict()  # by arguments' ids
        self._seen: set[Placement] = set()  # of late
        self._passes = 0  # of arrays from stream to stream, when these were known

    def find(self, args: tuple[object, ...]) -> Route | None:
        """Return the route of a call with these very arguments, if all are still as they were."""
        last = self._args
        if self._passes != DeviceArray.passes:  # one of them may be ready elsewhere now
            self._passes = DeviceArray.passes
            self._sets.clear()
        elif last is not None and len(last) == len(args) and all(map(is_, last, args)):
            if not any(array.is_deleted() for array in self._deletable):
                return self._route
        elif self._sets:
            known = self._sets.get(tuple(map(id, args)))
            if known is not None and all(map(is_, map(call, known.refs), args)):
                self._take(args, known.route, args, ())
                return known.route
        self.forget_last()
        return None

    @property
    def are_ours(self) -> bool:
        """All of `owners` are arrays of ours."""
        return self.owners is self._args

    def forget_last(self) -> None:
        """Let go of the last call's arrays."""
        self._args, self._route, self.owners, self._deletable = None, None, (), ()

    def note(
        self,
        args: tuple[object, ...],
        route: Route,
        owners: Sequence[object],
        deletable: Sequence[Any] = (),
    ) -> None:
        """Know a call of arrays that stay as they are; its set too, if places come again.

        JAX can delete some of the arguments, `deletable`; `owners` must live until it has run.
        """
        self._take(args, route, owners, deletable)
        if deletable:
            return
        placement = route.placement
        if placement not in self._seen:
            if len(self._seen) >= SETS:
                self._seen.clear()
            self._seen.add(placement)
            return
        refs = list(map(weakref.ref, args))
        self._sets[tuple(map(id, args))] = _Set(refs, route)
        if len(self._sets) > SETS:
            self._sets.popitem(last=False)

    def _take(
        self,
        args: tuple[object, ...],
        route: Route,
        owners: Sequence[object],
        deletable: Sequence[Any],
    ) -> None:
        self._args, self._route, self.owners, self._deletable = args, route, owners, deletable


class _Set(NamedTuple):
    refs: Sequence[Callable[[], object]]
    route: Route
