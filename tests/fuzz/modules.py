"""Holds random modules against XLA for a while: `python tests/fuzz/modules.py SECONDS [SEED]`.

XLA works in a process of its own, since it ends the process over some programs. What differs is
made as small as possible and written to fuzz-failures/, to be looked at again by

    hlo2graph run FILE.hlo --inputs FILE.npz --reference xla
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from random_modules import random_module
from random_operations import UNDRAWN, random_arguments, random_operation, with_calls
from shrink import shrink

import hlo2graph as h2g
from hlo2graph.backends.host import HostExecutable
from hlo2graph.errors import HloError
from hlo2graph.hlo import Module
from hlo2graph.hlo.printer import format_module
from hlo2graph.inspect.compare import compare, tolerance_for
from hlo2graph.inspect.reference import host_results
from hlo2graph.ops import OPS
from hlo2graph.ops.spec import Array
from hlo2graph.passes.sizes.settle_sizes import settle_sizes

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

    def ask(self, text: str, arguments: Sequence[Array]) -> None:
        """Have it run a module; `answer` waits for that, so that work can be done meanwhile."""
        self._ours.send((text, list(arguments)))

    def answer(self) -> list[Array] | str:
        """Return the results of what was asked, or why there are none."""
        try:
            if self._ours.poll(TIMEOUT):
                answer: list[Array] | str = self._ours.recv()
                return answer
            why = "XLA takes too long"
        except (EOFError, ConnectionResetError):
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
    xla.ask(format_module(replace(module, attrs={})), arguments)
    ours, want = _ours(module, arguments), xla.answer()
    if isinstance(ours, str):
        return ours
    if isinstance(want, str):
        return want
    leaves = list(module.entry.result.shape.leaves())
    for got in ours:
        for leaf, mine, theirs in zip(leaves, got, want, strict=True):
            found = compare(np.asarray(mine), theirs, tolerance_for(leaf.dtype))
            if not found.ok:
                return str(found)
    return None


def _ours(module: Module, arguments: Sequence[Array]) -> list[Sequence[Array]] | str:
    """Return the results in each way of planning, or why there are none."""
    try:
        ways = [HostExecutable(h2g.plan(module, **way))(*arguments) for way in WAYS]
        return [host_results(settle_sizes(module), arguments), *ways]
    except HloError as error:
        return f"refused: {error.message}"
    except Exception as error:  # whatever it is, it is what we look for
        return f"{type(error).__name__}: {error}"


def _fails(xla: Xla, arguments: Sequence[Array], kind: str, module: Module) -> bool:
    why = difference(xla, arguments, module)
    return why is not None and kind_of(why) == kind


def kind_of(why: str) -> str:
    """Return what kind of finding it is: figures and names in it may change as modules shrink."""
    return "differs" if "elements differ" in why else why.partition(":")[0]


def main(seconds: float, seed: int) -> int:
    """Run until the time is over; return the exit code."""
    xla = Xla()
    start = time.monotonic()
    drawn: Counter[str] = Counter()
    tries = failed = 0
    while time.monotonic() < start + seconds:
        rnd = random.Random(f"{seed}-{tries}")  # neighbouring numbers would share most modules
        text = random_operation(rnd) if rnd.random() < 0.7 else random_module(rnd)
        arguments, module = random_arguments(text, rnd), h2g.parse(text)
        drawn.update({i.opcode for c in module.computations.values() for i in c.instructions})
        if why := difference(xla, arguments, module):
            failed += 1
            least = shrink(module, partial(_fails, xla, arguments, kind_of(why)))
            path = _keep(f"{seed}-{tries}", least, arguments)
            print(f"{path}: {why}", flush=True)
        tries += 1
    rate = tries / (time.monotonic() - start)
    print(f"seed {seed}: {tries} modules, {rate:.0f} a second, {failed} differ")
    print(coverage(drawn))
    return 1 if failed else 0


def coverage(drawn: Counter[str]) -> str:
    """Say how many opcodes the modules have, which they have seldom, and which never."""
    seldom = ", ".join(f"{opcode} {count}" for opcode, count in drawn.most_common()[:-11:-1])
    never = ", ".join(sorted(OPS.keys() - drawn.keys() - UNDRAWN.keys())) or "none"
    return f"{len(drawn)} opcodes drawn; in the fewest: {seldom}\nleft out by chance: {never}"


def _keep(name: str, module: Module, arguments: Sequence[Array]) -> Path:
    FAILURES.mkdir(exist_ok=True)
    path = FAILURES / f"{name}.hlo"
    path.write_text(format_module(module))
    np.savez(path.with_suffix(".npz"), **{f"arg{k}": _stored(a) for k, a in enumerate(arguments)})
    return path


def _stored(array: Array) -> Array:
    """Return the array, a dtype that NumPy lacks as the unsigned integer of its width."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")


if __name__ == "__main__":
    given = sys.argv[1:] or ["60"]
    chosen = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(10**6)
    sys.exit(main(float(given[0]), chosen))
