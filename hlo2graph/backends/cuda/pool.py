"""The instances of an executable: calls that come at once get one each, up to a number."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hlo2graph.backends.cuda.driver import is_out_of_memory
from hlo2graph.backends.cuda.instance import Instance
from hlo2graph.backends.cuda.memory import Stream
from hlo2graph.errors import BackendError


class Pool:
    """Hands out instances. Each thread keeps its own on each stream as long as that is possible.

    Results that somebody holds in an instance's memory are overwritten by calls of the same thread
    on the same stream alone. Where all instances hold such, one is dropped and made anew: its
    results live on, in memory that is now theirs.
    """

    def __init__(self, first: Instance, make: Callable[[], Instance], limit: int) -> None:
        """Begin with `first`, which is never dropped; there are two at least, if need be."""
        self._all, self._make, self._limit = [first], make, max(2, limit)
        self._lock = threading.Lock()
        self._users = _Users()
        self._mine: dict[object, Instance] = {}  # by user
        self._turn = 0
        self._give(first, self._user(None))

    @property
    def instances(self) -> tuple[Instance, ...]:
        """Those that are there."""
        return tuple(self._all)

    def take(self, stream: Stream | None) -> Instance:
        """Return an instance, locked; `stream` is the caller's, None the instance's own.

        Waits where all of them are at work.
        """
        user = self._user(stream)
        mine = self._own(user)
        while mine is None:
            with self._lock:
                mine = self._own(user) or self._free(user, idle=True) or self._another(user)
                mine = mine or self._free(user, idle=False) or self._renewed(user)
                if mine is not None:
                    break
                self._turn += 1
                busy = self._all[self._turn % len(self._all)]
            with busy.lock:
                pass
        return mine

    def _user(self, stream: Stream | None) -> object:
        """Return who calls: a thread's number comes again when it has ended, its token does not."""
        users = self._users.by_stream
        return users.get(stream) or users.setdefault(stream, object())

    def _own(self, user: object) -> Instance | None:
        instance = self._mine.get(user)
        if instance is None or not instance.lock.acquire(blocking=False):
            return None
        if instance.user is user:
            return instance
        instance.lock.release()  # it was given away just now
        return None

    def _give(self, instance: Instance, user: object) -> None:
        """Let an instance that nobody is at be the user's."""
        self._take_away(instance)
        instance.user = user
        self._mine[user] = instance

    def _take_away(self, instance: Instance) -> None:
        if self._mine.get(instance.user) is instance:
            del self._mine[instance.user]
        instance.user = None

    def _free(self, user: object, *, idle: bool) -> Instance | None:
        for instance in self._all:
            if not instance.lock.acquire(blocking=False):
                continue
            # Looked at with the lock held: who held it before may have left results there.
            if instance.has_results_out or (idle and not instance.is_idle):
                instance.lock.release()
                continue
            self._give(instance, user)
            return instance
        return None

    def _another(self, user: object) -> Instance | None:
        """Make one more, unless there are as many as may be, or as the GPU has room for."""
        if len(self._all) >= self._limit:
            return None
        try:
            return self._made(user)
        except BackendError as error:
            if not is_out_of_memory(error) or self._all[0].has_results_out:
                raise
            self._limit = len(self._all)
            return None

    def _renewed(self, user: object) -> Instance | None:
        """Make one in the place of an instance that is full of results, and not at work."""
        for instance in self._all[1:]:
            if instance.lock.acquire(blocking=False):
                self._all.remove(instance)
                self._take_away(instance)
                instance.lock.release()  # somebody may wait for it, to look for another one then
                return self._made(user)
        return None

    def _made(self, user: object) -> Instance:
        instance = self._make()
        instance.lock.acquire()
        self._give(instance, user)
        self._all.append(instance)
        return instance


class _Users(threading.local):
    """Who a thread is, by the stream that it calls on."""

    def __init__(self) -> None:
        self.by_stream: dict[Stream | None, object] = {}
