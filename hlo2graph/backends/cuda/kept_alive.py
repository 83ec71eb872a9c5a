"""What calls under way use lives until they have run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from ctypes import c_void_p

from hlo2graph.backends.cuda.driver import bound
from hlo2graph.backends.cuda.memory import Event, Stream

IN_FLIGHT = 32  # calls whose arrays are kept alive before the host waits for the oldest


class KeptAlive:
    """What calls under way use: it is let go once they have run.

    What the last call uses is marked when another one comes, so that a call that comes again and
    again marks nothing.
    """

    __slots__ = ("_held", "_last", "_spare", "_stream")

    def __init__(self) -> None:
        self._held: deque[tuple[_Mark, Sequence[object]]] = deque()
        self._spare: list[_Mark] = []
        self._last: Sequence[object] = ()
        self._stream: Stream | None = None

    def keep(self, owners: Sequence[object], stream: Stream, *, at_once: bool) -> None:
        """Hold `owners` until everything that `stream` has been given so far has run.

        `at_once` marks that now, because the stream may be gone when another call comes.
        """
        if owners is self._last and stream is self._stream:
            return
        if self._held:
            self._drop()
        self._mark()
        self._last, self._stream = owners, stream
        if at_once:
            self._mark()

    def _mark(self) -> None:
        if self._last and self._stream is not None:
            mark = self._spare.pop() if self._spare else _Mark()
            mark.set(self._stream)
            self._held.append((mark, self._last))
        self._last = ()

    def _drop(self) -> None:
        while self._held:
            mark, _ = self._held[0]
            if not mark.is_past:
                if len(self._held) <= IN_FLIGHT:
                    return
                mark.event.synchronize()
            self._held.popleft()
            self._spare.append(mark)

    def wait(self) -> None:
        """Wait until nothing that is held is used."""
        self._mark()
        for mark, _ in self._held:
            mark.event.synchronize()
        self._held.clear()


class _Mark:
    """A point in a stream, set and asked for by driver calls that were made ready once."""

    __slots__ = ("_ask", "_on", "_set", "_stream", "event")

    def __init__(self) -> None:
        self.event = Event()
        handle, self._stream = c_void_p(int(self.event.handle)), c_void_p()
        self._on: Stream | None = None
        self._set = bound("cuEventRecord", handle, self._stream, place="marking a call's end")
        self._ask = bound("cuEventQuery", handle).function

    def set(self, stream: Stream) -> None:
        """Mark what `stream` has been given so far."""
        if stream is not self._on:
            self._on, self._stream.value = stream, int(stream)
        self._set()

    @property
    def is_past(self) -> bool:
        """What was marked has run."""
        return not self._ask()
