"""NVRTC by its C interface, in this process and in helpers.

Helpers run this file, and nothing else of ours or of others: so they are there within milliseconds.
NVRTC parses one text at a time in each process.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import select
import struct
import sys
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from threading import Thread

PATIENCE_S = 60  # that a helper waits for work before it ends
READY = b"."  # what a helper says first
SIZE = struct.Struct("=Q")  # of an answer, in front of it
KEPT_BYTES = 1 << 25  # of freed memory, which the next text takes without asking the system for it
# The first text of a process takes tens of milliseconds more: none that is waited for should be it.
FIRST = 'extern "C" __global__ void k(float* r0) { r0[threadIdx.x] += 1.0f; }'

Texts = Sequence[tuple[str, str]]


class Refused(Exception):
    """NVRTC did not do what it was asked."""


class Nvrtc:
    """The library."""

    def __init__(self, path: str) -> None:
        """Load it. Raises OSError."""
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = c_char_p

    def version(self) -> tuple[int, int]:
        """Return NVRTC's version, as (13, 0)."""
        major, minor = c_int(), c_int()
        self._call("nvrtcVersion", byref(major), byref(minor))
        return major.value, minor.value

    def architectures(self) -> list[int]:
        """Return what it compiles for: 90 for sm_90."""
        count = c_int()
        self._call("nvrtcGetNumSupportedArchs", byref(count))
        found = (c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return list(found)

    def compile(self, text: str, headers: Texts, options: Sequence[str], kind: str) -> bytes:
        """Return the CUBIN or PTX (`kind`) of a text; `headers` are names and texts.

        Raises:
            Refused: with what NVRTC says of the text.
        """
        program = c_void_p()
        names, texts = (_strings(part) for part in zip(*headers, strict=True))
        self._call(
            *("nvrtcCreateProgram", byref(program), text.encode(), b"kernels.cu"),
            *(len(headers), texts, names),
        )
        try:
            self._call("nvrtcCompileProgram", program, len(options), _strings(options))
        except Refused as refused:
            log = self._read("ProgramLog", program).rstrip(b"\0 ").decode(errors="replace")
            raise Refused(f"{refused}\n{log}" if log else str(refused)) from None
        else:
            return self._read(kind, program)
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _read(self, what: str, program: c_void_p) -> bytes:
        size = c_size_t()
        self._call(f"nvrtcGet{what}Size", program, byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, data)
        return data.raw

    def _call(self, api: str, *arguments: object) -> None:
        status = getattr(self._library, api)(*arguments)
        if status:
            raise Refused(f"{api}: {self._library.nvrtcGetErrorString(status).decode()}")


def _strings(texts: Sequence[str]) -> ctypes.Array[c_char_p]:
    return (c_char_p * len(texts))(*(text.encode() for text in texts))


def serve(path: str, number: int) -> None:
    """Compile what comes on a socket, one text after another, until it ends or nothing comes."""
    questions, answers = os.fdopen(number, "rb"), os.fdopen(os.dup(number), "wb")
    Thread(target=_end_with_who_asks, args=(number,), daemon=True).start()
    _keep_freed_memory()
    library = Nvrtc(path)
    answers.write(READY)
    answers.flush()
    library.compile(FIRST, (("", ""),), (f"-arch=sm_{library.architectures()[-1]}",), "CUBIN")
    while select.select([number], [], [], PATIENCE_S)[0]:
        try:
            asked = marshal.load(questions)
        except EOFError:
            return
        answer: bytes | str
        try:
            answer = library.compile(*asked)
        except Refused as refused:
            answer = str(refused)
        held = marshal.dumps(answer)
        answers.write(SIZE.pack(len(held)) + held)
        answers.flush()


def _end_with_who_asks(number: int) -> None:
    """End once no process has the other end of the socket, in the middle of a text too."""
    waiting = select.poll()
    waiting.register(number, 0)  # for nothing but that
    waiting.poll()
    os._exit(0)


def _keep_freed_memory() -> None:
    """Let the allocator give little back to the system, where it is one that can be told."""
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is not None:
        trim_threshold, mmap_threshold = -1, -3
        tell(trim_threshold, KEPT_BYTES)
        tell(mmap_threshold, KEPT_BYTES)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
