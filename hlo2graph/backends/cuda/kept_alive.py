"""What calls under way use lives until they have run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hlo2graph.backends.cuda.memory import Event, Stream

IN_FLIGHT = 32  # calls whose arrays are kept alive before the host waits for the oldest


class KeptAlive:
    """What calls under way use: it is let go once they have run.

    What the last call uses is marked when another one comes, so that a call that comes again and
    again marks nothing.
    """

    __slots__ = ("_held", "_last", "_spare", "_stream")

    def __init__(self) -> None:
        self._held: deque[tuple[Event, Sequence[object]]] = deque()
        self._spare: list[Event] = []
        self._last: Sequence[object] = ()
        self._stream: Stream | None = None

    def keep(self, owners: Sequence[object], stream: Stream, *, at_once: bool) -> None:
        """Hold `owners` until everything that `stream` has been given so far has run.

        `at_once` marks that now, because the stream may be gone when another call comes.
        """
        if owners is self._last and stream is self._stream:
            return
        self._drop()
        self._mark()
        self._last, self._stream = owners, stream
        if at_once:
            self._mark()

    def _mark(self) -> None:
        if self._last and self._stream is not None:
            event = self._spare.pop() if self._spare else Event()
            event.record(self._stream.handle)
            self._held.append((event, self._last))
        self._last = ()

    def _drop(self) -> None:
        while self._held and (self._held[0][0].is_past or len(self._held) > IN_FLIGHT):
            event, _ = self._held.popleft()
            event.synchronize()
            self._spare.append(event)

    def wait(self) -> None:
        """Wait until nothing that is held is used."""
        self._mark()
        for event, _ in self._held:
            event.synchronize()
        self._held.clear()
