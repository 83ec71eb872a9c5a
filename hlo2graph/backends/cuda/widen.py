"""Which elements a thread of a loop computes, and their code.

As many as fill accesses of 16 bytes, where every multiprocessor keeps a block and the values of all
fit into registers. They lie side by side where most of the accesses merge. Else they lie a block's
threads apart, so that each access is still one of neighbouring threads, and several run at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.lanes import Lanes
from hlo2graph.backends.cuda.narrow_lanes import two_by_two
from hlo2graph.backends.cuda.source import ACCESS_BYTES, Signature
from hlo2graph.hlo import Shape
from hlo2graph.program.device_figures import DeviceFigures

THREADS = 256
MOST_VALUES = 96  # alive at once in a thread
MOST_LINES = 4000
MOST_APART = 8  # lanes that lie apart: bytes would else be as many as merged ones
MANY = 4  # blocks of a multiprocessor: more take longer to start than threads with several elements
FEW = 4  # an array of fewer elements than a quarter of the results is left out of account
_VALUE = re.compile(r"\b[vm]\d+(?:_\d+)?\b")


def lanes_for(signature: Signature, results: Sequence[Shape]) -> int:
    """Return how many elements of `results`, all of the same dimensions, suit a thread.

    One, as long as few blocks have a thread for each: what it is bound by is then the way there.
    """
    count, device = results[0].elements, signature.device
    if count <= device.multiprocessors * MANY * THREADS:
        return 1
    read = [s.dtype.size for s in signature.parameters if s.elements * FEW >= count]
    # More would part what neighbouring threads access in the widest arrays.
    lanes = max(1, ACCESS_BYTES // max(*read, *(s.dtype.size for s in results), 1))
    while lanes > 1 and count // lanes < device.multiprocessors * THREADS:
        lanes //= 2
    return lanes


def holds_all(count: int, device: DeviceFigures) -> bool:
    """Tell whether a device holds a thread for each of `count` elements at once."""
    return count <= device.multiprocessors * device.threads


@dataclass(frozen=True, slots=True)
class Wide:
    """A body for several lanes, `step` elements apart: 1, or THREADS."""

    lines: Sequence[str]
    lanes: int
    step: int


def widened(
    body: Sequence[str], first: str, signature: Signature, results: Sequence[Shape]
) -> Wide | None:
    """Return the body that computes element `first` for as many lanes as suit; None for one."""
    count = results[0].elements
    lanes, step = lanes_for(signature, results), 1
    while lanes > 1:
        if lanes * len(body) <= MOST_LINES:
            wide = Lanes(body, first, lanes, step)
            if step == 1 and not _mostly_merges(wide, signature, count):
                if holds_all(count, signature.device):
                    return None  # no access less is to be had, and there is a thread for each
                lanes, step = min(lanes, MOST_APART), THREADS
                continue
            if most_alive(wide.lines) <= MOST_VALUES:
                types = {f"p{k}": s.dtype.name for k, s in enumerate(signature.parameters)}
                return Wide(two_by_two(wide.lines, types), lanes, step)
        lanes //= 2
    return None


def _mostly_merges(wide: Lanes, signature: Signature, count: int) -> bool:
    """Tell whether more than half of the accesses of large arrays take all lanes at once."""
    large = {f"p{k}" for k, s in enumerate(signature.parameters) if s.elements * FEW >= count}
    found = [
        access.merges and access.array not in signature.misaligned
        for access in wide.accesses
        if access.array in large or access.array.startswith("r")
    ]
    return 2 * sum(found) > len(found)


def most_alive(lines: Sequence[str]) -> int:
    """Return how many values are alive at once, from first to last mention in the text."""
    ends: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        for name in _VALUE.findall(line):
            ends.setdefault(name, [at, at])[1] = at
    changes = [0] * (len(lines) + 1)
    for first, last in ends.values():
        changes[first] += 1
        changes[last] -= 1
    alive = most = 0
    for change in changes:
        alive += change
        most = max(most, alive)
    return most
