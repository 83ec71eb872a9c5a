"""What is measured on the host: one thread in program order, and a pool along the DAG."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hlo2graph.backends.host import HostExecutable
from hlo2graph.inspect.timing import Mode, Sample


class HostRunner:
    """Runs an executable over its own buffers; a donated input is restored before each run."""

    def __init__(self, executable: HostExecutable, args: Sequence[object], *, threads: int) -> None:
        self._executable = executable
        self._args = args
        self._donated = executable.plan.donated
        self._threads: dict[str, int | None] = {"serial": None, "graph": threads}
        self.modes = (
            Mode("serial", "one thread, program order"),
            Mode("graph", f"{threads} threads along the DAG"),
        )
        executable.write_inputs(args)

    def prepare(self, mode: Mode) -> None:  # noqa: ARG002  # all modes start alike
        """Restore the inputs that the last run overwrote."""
        if self._donated:
            self._executable.write_inputs(self._args, only=self._donated)

    def launch(self, mode: Mode) -> Sample:
        """Run once and time it."""
        threads = self._threads[mode.name]
        start = time.perf_counter()
        self._executable.execute(threads)
        return Sample(time.perf_counter() - start)
