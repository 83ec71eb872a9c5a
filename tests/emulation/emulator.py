"""Compile emitted CUDA C++ with g++ and run it in place of the host backend's NumPy rules."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hlo2graph.backends.cuda.compiler import headers
from hlo2graph.backends.cuda.kernels import KernelKey, kernels_of, key_of
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.host import HostExecutable
from hlo2graph.backends.host.arena import Arena
from hlo2graph.backends.host.steps import Computing, load
from hlo2graph.program.plan import Plan

FOLDER = Path(__file__).parent
CACHE = Path(tempfile.gettempdir()) / f"hlo2graph-emulation-{os.getuid()}"
OPTIONS = (
    "-std=c++17",
    "-O1",
    "-shared",
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-w",
)
COOPERATES = re.compile(
    r"__sync|shuffle|__shfl|block_sum|sort_window|sort_by_key|count_before|by_warp|fft_line"
    r"|factor_block|factor_panel|reflect_panel|take_|a\.solve|count_digits"
)
CLUSTER = re.compile(r"__cluster_dims__\((\d+)\)")


class EmulatedExecutable(HostExecutable):
    """A plan whose kernels are the device's own text, compiled for this machine.

    Copies, fills, loops and branches run as on the host backend. Orders, poison and the check of
    arguments are the host backend's too.
    """

    def __init__(self, plan: Plan, kernels: Kernels | None = None) -> None:
        self._kernels = kernels or Kernels([plan])
        self._number = self._kernels.number(plan)
        super().__init__(plan)
        self._block = load(plan.body, self._arena, self._step)

    def _step(self, thunk: Computing):
        addresses = [_address(self._arena, part) for part in (*thunk.reads, *thunk.writes)]
        return self._kernels.launcher(self._number, key_of(thunk), addresses)


def _address(arena: Arena, part) -> int:
    return int(arena.raw(part).ctypes.data) if part.size else 0


class Kernels:
    """The kernels of many plans in one shared library, each behind `run_NAME(pointers, ...)`."""

    def __init__(self, plans: Sequence[Plan], *, precise: bool = True) -> None:
        self._plans = plans
        self._sources = [
            {
                key: _renamed(source, number)
                for key, source in kernels_of(plan, precise=precise).items()
            }
            for number, plan in enumerate(plans)
        ]
        built = _build([s for sources in self._sources for s in dict.fromkeys(sources.values())])
        self._library = ctypes.CDLL(str(built))

    def number(self, plan: Plan) -> int:
        return next(n for n, known in enumerate(self._plans) if known is plan)

    def run_backwards(self, on: bool) -> None:
        """From now on, take blocks, and threads between barriers, from the last to the first."""
        self._library.run_backwards(int(on))

    def launcher(self, number: int, key: KernelKey, addresses: Sequence[int]):
        source = self._sources[number][key]
        run = self._library[f"run_{source.name}"]
        run.restype = None
        values = np.array(addresses, dtype=np.uint64)
        pointers = values.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)
        arguments = ctypes.c_void_p(int(pointers.ctypes.data))
        blocks = source.grid[0]

        def step(_, keep=(values, pointers)) -> None:
            run(arguments, blocks, source.threads, source.shared_bytes)

        return step


def _renamed(source: KernelSource, number: int) -> KernelSource:
    """Give a kernel a name that no other plan's has."""
    name = f"p{number}_{source.name}"
    text = re.sub(rf"\b{re.escape(source.name)}\(", f"{name}(", source.text, count=1)
    return replace(source, name=name, text=text)


def _wrapper(source: KernelSource) -> str:
    """Return C++ that unpacks an array of pointers to arguments and launches the kernel."""
    head = source.text[source.text.index(source.name) : source.text.index("{")]
    parameters = head[head.index("(") + 1 : head.rindex(")")]
    types = [p.strip().rsplit(" ", 1)[0] for p in parameters.split(",") if p.strip()]
    unpacked = ", ".join(f"*({t}*)a[{k}]" for k, t in enumerate(types))
    found = CLUSTER.search(source.text)
    cluster = found[1] if found else "1"
    cooperative = "true" if COOPERATES.search(source.text) else "false"
    return (
        f"static void body_{source.name}(void** a) {{ {source.name}({unpacked}); }}\n"
        f'extern "C" void run_{source.name}(void** a, unsigned blocks, unsigned threads, '
        f"unsigned shared) {{\n  emulated::launch(body_{source.name}, a, blocks, threads, shared, "
        f"{cluster}, {cooperative});\n}}\n"
    )


def _build(sources: Sequence[KernelSource]) -> Path:
    """Compile all kernels into one library, or find it where it was compiled before."""
    parts = ['#include "cuda_on_cpu.h"', '#include "hlo2graph.cuh"']
    parts += [s.text + _wrapper(s) for s in sources]
    text = "\n".join(parts)
    shim = (FOLDER / "cuda_on_cpu.h").read_text()
    key = hashlib.sha256("\0".join((text, shim, *OPTIONS, *(t for _, t in headers()))).encode())
    library = CACHE / f"{key.hexdigest()[:32]}.so"
    if not library.exists():
        _compile(text, library)
    return library


def _compile(text: str, library: Path) -> None:
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        for name, header in headers():
            (Path(folder) / name).write_text(header)
        source, built = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(text)
        command = ["g++", *OPTIONS, f"-I{folder}", f"-I{FOLDER}", str(source), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"g++ refuses the kernels:\n{done.stderr[:4000]}"
        built.replace(library)
