"""What the assembler says of a kernel: registers, and local memory that it spills to."""

from __future__ import annotations

import re

import pytest

from hlo2graph.backends.cuda.compiler import OPTIONS, headers, unit_text

SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def spilt(kernel: str, arch: str) -> int:
    """Return the bytes of local memory of one kernel's text: its stack, and what is spilt."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    names, texts = zip(*headers(), strict=True)
    _, program = nvrtc.nvrtcCreateProgram(
        unit_text([kernel]).encode(),
        b"kernel.cu",
        len(names),
        [t.encode() for t in texts],
        [n.encode() for n in names],
    )
    options = [f"--gpu-architecture={arch}", *OPTIONS, "-Xptxas", "-v"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    found = SPILLS.findall(log.decode())
    assert found, "the assembler says nothing"
    return sum(int(count) for counts in found for count in counts)
