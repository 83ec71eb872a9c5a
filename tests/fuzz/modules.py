"""Holds random modules against XLA for a while: `python tests/fuzz/modules.py SECONDS [SEED]`.

XLA works in a process of its own, since it ends the process over some programs. What differs is
made as small as possible and written to fuzz-failures/, to be looked at again by

    hlo2graph run FILE.hlo --inputs FILE.npz --reference xla
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from random_modules import random_module
from random_operations import random_arguments, random_operation, with_calls

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import HloError
from hlo2graph.hlo import Computation, Module
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.inspect.reference import host_results
from hlo2graph.ops.spec import Array

FAILURES = Path("fuzz-failures")
TIMEOUT = 60
WAYS = ({}, {"fuse": "default"}, {"max_buffer_reuse": -1})


class Xla:
    """XLA in a process of its own, started anew where it died."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def __call__(self, text: str, arguments: Sequence[Array]) -> list[Array] | str:
        """Return the results, or why there are none."""
        try:
            self._ours.send((text, list(arguments)))
            if self._ours.poll(TIMEOUT):
                answer: list[Array] | str = self._ours.recv()
                return answer
            why = "XLA takes too long"
        except (EOFError, BrokenPipeError, ConnectionResetError):
            why = "XLA died"
        self._process.kill()
        self._start()
        return why


def _serve(pipe: Connection) -> None:
    from xla import run_xla

    while True:
        try:
            text, arguments = pipe.recv()
        except EOFError:  # the other end is done
            return
        try:
            pipe.send(run_xla(with_calls(text), arguments))
        except Exception as error:  # XLA raises many kinds
            pipe.send(f"XLA refuses it: {str(error)[:300]}")


def difference(xla: Xla, arguments: Sequence[Array], module: Module) -> str | None:
    """Say how the module's results differ from XLA's, or its plans' from its own; else None."""
    want = xla(format_module(replace(module, attrs={})), arguments)
    try:
        ours = [host_results(module, arguments)]
        ours += [HostExecutable(h2g.plan(module, **way))(*arguments) for way in WAYS]
    except HloError as error:
        return f"refused: {error.message}"
    except Exception as error:  # whatever it is, it is what we look for
        return f"{type(error).__name__}: {error}"
    if isinstance(want, str):
        return want
    leaves = list(module.entry.result.shape.leaves())
    for got in ours:
        for leaf, mine, theirs in zip(leaves, got, want, strict=True):
            found = compare(np.asarray(mine), theirs, tolerance_for(leaf.dtype))
            if not found.ok:
                return str(found)
    return None


def smaller(module: Module) -> Iterator[Module]:
    """Yield the module with each of its entry's instructions as the result, the fewest first."""
    entry = module.entry
    for instr in entry.instructions:
        if instr.opcode not in ("parameter", "constant") and instr.name != entry.root:
            kept = {**module.computations, entry.name: _needed(entry, instr.name)}
            yield replace(module, attrs={}, computations=kept)


def _needed(entry: Computation, root: str) -> Computation:
    wanted = {root}
    for instr in reversed(entry.instructions):
        if instr.name in wanted:
            wanted.update(instr.operands)
            after = instr.attrs.get("control-predecessors", ())
            assert isinstance(after, tuple)
            wanted.update(str(name) for name in after)
    kept = (i for i in entry.instructions if i.name in wanted or i.opcode == "parameter")
    return Computation(entry.name, tuple(kept), root, entry.execution_thread, entry.span)


def shrink(module: Module, fails: Callable[[Module], str | None]) -> Module:
    """Return the smallest of the modules that fail."""
    return next((less for less in smaller(module) if fails(less)), module)


def main(seconds: float, seed: int) -> int:
    """Run until the time is over; return the exit code."""
    xla = Xla()
    end = time.monotonic() + seconds
    tries = failed = 0
    while time.monotonic() < end:
        rnd = random.Random(seed + tries)
        text = random_operation(rnd) if rnd.random() < 0.7 else random_module(rnd)
        arguments, module = random_arguments(text, rnd), h2g.parse(text)
        tries += 1
        if why := difference(xla, arguments, module):
            failed += 1
            least = shrink(module, partial(difference, xla, arguments))
            FAILURES.mkdir(exist_ok=True)
            path = FAILURES / f"{seed + tries - 1}.hlo"
            path.write_text(format_module(least))
            stored = {f"arg{k}": _stored(a) for k, a in enumerate(arguments)}
            np.savez(path.with_suffix(".npz"), **stored)
            print(f"{path}: {why}", flush=True)
    print(f"seed {seed}: {tries} modules, {failed} differ")
    return 1 if failed else 0


def _stored(array: Array) -> Array:
    """Return the array, a dtype that NumPy lacks as the unsigned integer of its width."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


if __name__ == "__main__":
    given = sys.argv[1:] or ["60"]
    chosen = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(10**6)
    sys.exit(main(float(given[0]), chosen))
