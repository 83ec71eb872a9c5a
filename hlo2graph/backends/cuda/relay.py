"""Letting one stream wait for another, call after call."""

from __future__ import annotations

from ctypes import c_uint, c_void_p

from hlo2graph.backends.cuda.driver import bound
from hlo2graph.backends.cuda.memory import Event


class Relay:
    """What `waiting` gets after a call of this runs after all that `running` has got before it."""

    __slots__ = ("_record", "_wait")

    def __init__(self, waiting: int, running: int) -> None:
        event = Event()
        handle = c_void_p(int(event.handle))
        self._record = bound("cuEventRecord", handle, c_void_p(running), keep=event)
        self._wait = bound(
            "cuStreamWaitEvent", c_void_p(waiting), handle, c_uint(0), place="waiting", keep=event
        )

    def __call__(self) -> None:
        """Mark what `running` has got, and let `waiting` wait for that."""
        self._record()
        self._wait()
