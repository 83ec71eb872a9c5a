"""What a graph takes on the device, the host's launching left out."""

from __future__ import annotations

from hlo2graph.backends.cuda.executable import CudaExecutable
from hlo2graph.backends.cuda.memory import Event
from hlo2graph.backends.cuda.serial import Gate


class DeviceClock:
    """Times runs of an executable's graph over its own buffers, each enqueued behind a gate."""

    def __init__(self, executable: CudaExecutable) -> None:
        self._executable, self._stream = executable, executable.stream
        self._gate = Gate(self._stream)
        self._start, self._end = Event(timed=True), Event(timed=True)

    def seconds(self) -> float:
        """Return what one run takes from the moment that the device may begin."""
        self._gate.close()
        try:
            self._start.record(self._stream.handle)
            self._executable.graph.launch()
            self._end.record(self._stream.handle)
        finally:
            self._gate.open()
        self._stream.synchronize("timing a run")
        return self._end.since(self._start)
