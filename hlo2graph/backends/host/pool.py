"""A thread pool that walks a block along its edges.

Threads sleep until a step is ready; there is no polling. A thread that meets a nested block takes
part in it and runs nothing else until that block is done, so its stack never grows past the
program's own nesting.
"""

from __future__ import annotations

import weakref
from threading import Condition, Lock, Thread

from hlo2graph.backends.host.block import Block


class Pool:
    """`threads` threads, the calling one included. `run` is a walk."""

    def __init__(self, threads: int) -> None:
        assert threads >= 1
        self.threads = threads
        self._board = _Board()
        for _ in range(threads - 1):
            Thread(target=self._board.work, daemon=True).start()
        self._finalizer = weakref.finalize(self, _Board.close, self._board)

    def run(self, block: Block) -> None:
        """Run the block's steps, each as soon as all that it waits for is done.

        The first exception that a step raises stops the block and is raised again here.
        """
        self._board.run(block)

    def close(self) -> None:
        """Let the threads end; dropping the pool does the same."""
        self._finalizer()


class _Run:
    """One execution of a block."""

    def __init__(self, block: Block, lock: Lock) -> None:
        self.block = block
        self.waits = list(block.waits)
        self.ready = [i for i, count in enumerate(block.waits) if not count]
        self.ready.reverse()
        self.running = 0
        self.error: BaseException | None = None
        self.changed = Condition(lock)  # wakes the thread that owns this run

    @property
    def is_over(self) -> bool:
        return not self.ready and not self.running

    def take(self) -> int:
        self.running += 1
        return self.ready.pop()

    def finish(self, index: int) -> None:
        self.running -= 1
        if self.error is not None:
            return
        for later in self.block.successors[index]:
            self.waits[later] -= 1
            if not self.waits[later]:
                self.ready.append(later)

    def fail(self, error: BaseException) -> None:
        self.error = self.error or error
        self.ready.clear()


class _Board:
    """What all threads of a pool share: the runs under way, innermost last, under one lock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle = Condition(self._lock)
        self._runs: list[_Run] = []
        self._closed = False

    def run(self, block: Block) -> None:
        if block.is_chain:
            for step in block.steps:
                step(self.run)
            return
        run = _Run(block, self._lock)
        with self._lock:
            self._runs.append(run)
            self._idle.notify(len(run.ready) - 1)
        try:
            self._own(run)
        except BaseException as error:
            self._abandon(run, error)
        finally:
            with self._lock:
                self._runs.remove(run)
        if run.error is not None:
            raise run.error

    def _own(self, run: _Run) -> None:
        """Take part in `run` until it is over."""
        while True:
            with self._lock:
                while not run.ready:
                    if run.is_over:
                        return
                    run.changed.wait()
                index = run.take()
            self._follow(run, index)

    def _abandon(self, run: _Run, error: BaseException) -> None:
        """Wait for the steps that other threads still run, so that nobody writes afterwards."""
        with self._lock:
            run.fail(error)
            while not run.is_over:
                run.changed.wait()

    def work(self) -> None:
        """Run what is ready, of any run, until the pool is closed."""
        while True:
            with self._lock:
                while (run := next((r for r in reversed(self._runs) if r.ready), None)) is None:
                    if self._closed:
                        return
                    self._idle.wait()
                index = run.take()
            self._follow(run, index)

    def _follow(self, run: _Run, index: int | None) -> None:
        """Run a step, then as long as there is one, a step of the same run that is ready."""
        while index is not None:
            error: BaseException | None = None
            try:
                run.block.steps[index](self.run)
            except BaseException as raised:
                error = raised
            with self._lock:
                if error is not None:
                    run.fail(error)
                run.finish(index)
                index = run.take() if run.ready else None
                if run.ready:
                    self._idle.notify(len(run.ready))
                if run.ready or run.is_over:
                    run.changed.notify()

    def close(self) -> None:
        """Wake all threads to their end; an interrupt of this is raised when they are woken."""
        interrupt: KeyboardInterrupt | None = None
        woken = False
        while not woken:
            try:
                with self._lock:
                    self._closed = True
                    self._idle.notify_all()
                    woken = True
            except KeyboardInterrupt as raised:
                interrupt = raised
        if interrupt is not None:
            raise interrupt
