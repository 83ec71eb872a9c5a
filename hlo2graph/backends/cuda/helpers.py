"""Processes that compile beside this one, since NVRTC parses one text at a time in each.

They are started before a program is planned, and serve all programs that follow; one without work
for a minute ends. This process compiles too: whatever comes first, and all where none can be.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
from collections import deque
from contextlib import ExitStack, suppress
from multiprocessing.spawn import get_executable
from socket import socketpair
from subprocess import DEVNULL, Popen
from threading import Lock
from typing import TypeAlias

from hlo2graph.backends.cuda import nvrtc
from hlo2graph.backends.cuda.nvrtc import READY, SIZE

MOST = 8
READY_S = 5  # that a process may take to begin
Asked: TypeAlias = tuple[str, tuple[tuple[str, str], ...], tuple[str, ...], str]  # Nvrtc.compile's


def most_helpers() -> int:
    """Return how many there can be: one for each other processor, up to MOST.

    None in a program that holds Python and cannot be asked to run a file, and none under a tool
    that follows processes, as compute-sanitizer and Nsight do: it may hold them up.
    """
    is_python = get_executable() and not getattr(sys, "frozen", False)
    is_watched = any("INJECTION" in name for name in os.environ)
    can_be = is_python and os.name == "posix" and not is_watched
    return min(MOST, (os.cpu_count() or 1) - 1) if can_be else 0


class NotReadyError(Exception):
    """A helper has not begun."""


class Helper:
    """A process that compiles one text at a time."""

    def __init__(self, library: str) -> None:
        """Start it. Raises OSError."""
        self._socket, theirs = socketpair()
        with ExitStack() as failed, theirs:
            failed.enter_context(self._socket)
            for end in (self._socket, theirs):  # whatever socket.setdefaulttimeout was told
                end.setblocking(True)
            number = theirs.fileno()  # not stdout: what is preloaded into processes may print
            command = [os.fsdecode(get_executable()), "-I", "-S", nvrtc.__file__]
            # A group of its own: what a terminal interrupts is this process, which then ends it.
            self._process = Popen(
                [*command, library, str(number)],
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                pass_fds=(number,),
                process_group=0,
            )
            failed.pop_all()
        self._is_ready = False

    @property
    def is_there(self) -> bool:
        """It waits for work, or does some."""
        return self._process.poll() is None

    def compile(self, asked: Asked) -> bytes | str:
        """Return machine code, or why there is none.

        Raises:
            NotReadyError: it has not begun in READY_S.
            OSError, EOFError: it ended.
        """
        if not self._is_ready:
            self._wait()
        self._socket.sendall(marshal.dumps(asked))
        (size,) = SIZE.unpack(self._read(SIZE.size))
        answer: bytes | str = marshal.loads(self._read(size))
        return answer

    def _wait(self) -> None:
        self._socket.settimeout(READY_S)
        try:
            self._read(len(READY))
        except TimeoutError as error:
            raise NotReadyError from error
        self._socket.setblocking(True)
        self._is_ready = True

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise EOFError
            found += part
        return bytes(found)

    def end(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._socket.close()
        self._process.wait()

    def leave(self) -> None:
        """Leave it to the process that this one was forked from."""
        self._socket.close()
        self._process.returncode = 0


class Helpers:
    """All of this process."""

    def __init__(self) -> None:
        """Start none yet."""
        self._idle: deque[Helper] = deque()
        self._all: list[Helper] = []
        self._starting = Lock()
        self._can_be = True

    def start(self, library: str) -> None:
        """Have as many as there can be, but for those that cannot be started."""
        with self._starting, suppress(OSError):
            for helper in [h for h in self._all if not h.is_there]:
                self._drop(helper)
            while self._can_be and len(self._all) < most_helpers():
                self._all.append(Helper(library))
                self._idle.append(self._all[-1])

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all)

    def compile(self, asked: Asked) -> bytes | str | None:
        """Return machine code, or why there is none; None where no helper is idle."""
        try:
            helper = self._idle.pop()
        except IndexError:
            return None
        try:
            answer = helper.compile(asked)
        except NotReadyError:  # nor would others be
            self._can_be = False
            self.end()
            return None
        except (OSError, EOFError):  # it ended
            self._drop(helper)
            return None
        except BaseException:  # what it answers is of no use to who asks next
            self._drop(helper)
            raise
        self._idle.append(helper)
        return answer

    def end(self) -> None:
        """End all."""
        for helper in self._all[:]:
            self._drop(helper)

    def leave(self) -> None:
        """Forget all, in a process forked from theirs."""
        for helper in self._all:
            helper.leave()
        self._all.clear()
        self._idle.clear()
        self._starting = Lock()

    def _drop(self, helper: Helper) -> None:
        with suppress(ValueError):
            self._idle.remove(helper)
        with suppress(ValueError):
            self._all.remove(helper)
        helper.end()


HELPERS = Helpers()
atexit.register(HELPERS.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HELPERS.leave)
