"""Which instance a call gets, where others come and go at the same moment."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from hlo2graph.backends.cuda.pool import Pool


class LateResults:
    """A lock whose last holder left results in the instance just before it let go."""

    def __init__(self, instance) -> None:
        self.instance, self.inner = instance, threading.Lock()

    def acquire(self, blocking=True):
        taken = self.inner.acquire(blocking=blocking)
        self.instance.has_results_out = True
        return taken

    def release(self):
        self.inner.release()


def instance(**fields):
    found = SimpleNamespace(has_results_out=False, is_idle=True, user=None, **fields)
    found.lock = threading.Lock()
    return found


def test_results_left_at_the_last_moment_are_not_overwritten():
    first = instance()
    first.lock = LateResults(first)
    pool = Pool(first, instance, limit=2)
    first.user = "somebody else"
    taken = pool.take(None)
    assert taken is not first
    assert not first.lock.inner.locked()
    assert pool.instances == (first, taken)


def test_a_free_instance_is_taken_and_kept():
    first = instance()
    pool = Pool(first, instance, limit=2)
    first.user = "somebody who left"
    taken = pool.take(None)
    taken.lock.release()
    assert taken is first
    assert pool.take(None) is first
