"""What calls under way use lives until they have run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from ctypes import c_void_p

from hlo2graph.backends.cuda.driver import bound
from hlo2graph.backends.cuda.memory import Event, Stream

IN_FLIGHT = 32  # calls whose arrays are kept alive before the host waits for the oldest
AT_ONCE, HELD_BYTES = 8, 16 << 20  # calls marked together: so many, of so many bytes in all


class KeptAlive:
    """What calls under way use: it is let go once they have run.

    Marking that, and asking for it, costs about as much as launching. So it is done once for
    several calls, of `size` bytes each, if these are few and ours alone. What the last call uses is
    left out until another one comes, so that a call that comes again and again marks nothing.
    """

    __slots__ = (
        *("_are_ours", "_at_once", "_held", "_in_flight", "_last", "_spare", "_stream"),
        "_unmarked",
    )

    def __init__(self, size: int) -> None:
        self._at_once = max(1, min(AT_ONCE, HELD_BYTES // max(1, size)))
        self._held: deque[tuple[_Mark, Sequence[Sequence[object]]]] = deque()
        self._in_flight = 0  # calls held
        self._spare: list[_Mark] = []
        self._unmarked: list[Sequence[object]] = []
        self._last: Sequence[object] = ()
        self._are_ours = False
        self._stream: Stream | None = None

    def keep(self, owners: Sequence[object], stream: Stream, *, ours: bool, at_once: bool) -> None:
        """Hold `owners` until everything that `stream` has been given so far has run.

        `ours` tells that all of them are. `at_once` marks that now, because the stream may be gone
        when another call comes.
        """
        if owners is self._last and stream is self._stream:
            return
        if self._held and not ours:
            self._drop()
        if self._last:
            self._unmarked.append(self._last)
        together = ours and self._are_ours and stream is self._stream
        if not together or len(self._unmarked) >= self._at_once:
            self._mark()
        self._last, self._stream, self._are_ours = owners, stream, ours
        if at_once:
            self._mark_all()

    def _mark_all(self) -> None:
        if self._last:
            self._unmarked.append(self._last)
            self._last = ()
        self._mark()

    def _mark(self) -> None:
        if self._unmarked and self._stream is not None:
            if self._held:
                self._drop()
            mark = self._spare.pop() if self._spare else _Mark()
            mark.set(self._stream)
            self._held.append((mark, self._unmarked))
            self._in_flight += len(self._unmarked)
            self._unmarked = []

    def _drop(self) -> None:
        while self._held:
            mark, calls = self._held[0]
            if not mark.is_past:
                if self._in_flight <= IN_FLIGHT:
                    return
                mark.event.synchronize()
            self._held.popleft()
            self._in_flight -= len(calls)
            self._spare.append(mark)

    def wait(self) -> None:
        """Wait until nothing that is held is used."""
        self._mark_all()
        for mark, _ in self._held:
            mark.event.synchronize()
        self._held.clear()
        self._in_flight = 0


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
