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
FEWEST_ASKEW = 4  # lanes that are read by words from anywhere on
WIDEST_ASKEW = 2  # bytes of elements that are read by words from anywhere on
FEW = 4  # an array of fewer elements than a quarter of the results is left out of account
_STRAIGHT = re.compile(r" *(?:const [\w:]+ \w+|r\d+\[.*\]) = .*;$")
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
    """A body for several lanes, `step` elements apart: 1, or THREADS.

    Where `row` says how many elements a row has, it is for lanes that lie in one, and on one side
    of each of the columns in `edges`.
    """

    lines: Sequence[str]
    lanes: int
    step: int
    row: int = 0
    edges: tuple[int, ...] = ()

    @property
    def is_straight(self) -> bool:
        """Tell whether the lines are constants and stores, without branches."""
        return all(map(_STRAIGHT.match, self.lines))


def widened(
    body: Sequence[str],
    first: str,
    signature: Signature,
    results: Sequence[Shape],
    *,
    may_repeat: bool = False,
) -> Wide | None:
    """Return the body that computes element `first` for as many lanes as suit; None for one.

    may_repeat: an element may be computed twice, as no argument lies where a result does.
    """
    count = results[0].elements
    lanes, step = lanes_for(signature, results), 1
    while lanes > 1:
        if lanes * len(body) <= MOST_LINES:
            wide = Lanes(body, first, lanes, step)
            if step == 1 and not _mostly_merges(wide, signature, count):
                if holds_all(count, signature.device):
                    return None  # no access less is to be had, and there is a thread for each
                if may_repeat and (found := _within_rows(body, first, signature, results, lanes)):
                    return found
                lanes, step = min(lanes, MOST_APART), THREADS
                continue
            if most_alive(wide.lines) <= MOST_VALUES:
                return Wide(two_by_two(wide.lines, _types(signature)), lanes, step)
        lanes //= 2
    return None


def _within_rows(
    body: Sequence[str], first: str, signature: Signature, results: Sequence[Shape], most: int
) -> Wide | None:
    """Return a body for lanes side by side in a row, if they read narrow elements side by side.

    They are `most`, or as many fewer as let few enough lie across edges: where the code has no
    branches, a thread has several words of these.
    """
    lanes = most
    while lanes >= FEWEST_ASKEW:
        found = _row_lanes(body, first, signature, results, lanes)
        if found and (lanes == most or found.is_straight):
            return found
        lanes //= 2
    return None


def _row_lanes(
    body: Sequence[str], first: str, signature: Signature, results: Sequence[Shape], lanes: int
) -> Wide | None:
    shape = results[0]
    row = next((n for d in shape.minor_to_major if (n := shape.dims[d]) > 1), 1)
    large = _large(signature, shape.elements)
    sizes = {s.dtype.size for k, s in enumerate(signature.parameters) if f"p{k}" in large}
    if not sizes or max(sizes) > WIDEST_ASKEW or min(sizes) * lanes < 4 or signature.misaligned:
        return None
    wide = Lanes(body, first, lanes, row=row)
    starts = {0, *wide.edges} if row % lanes else {e for e in wide.edges if e % lanes}
    edges = tuple(sorted(e for e in starts if 0 <= e < row))
    if 2 * len(edges) * lanes**2 > row or lanes * len(body) > MOST_LINES:
        return None  # too many lie across edges
    if any(a.array[0] == "r" and not a.merges for a in wide.accesses):
        return None
    if not all(a.merges or a.is_askew for a in wide.accesses if a.array in large):
        return None
    lines = two_by_two(wide.lines, _types(signature))
    return Wide(lines, lanes, 1, row, edges) if most_alive(lines) <= MOST_VALUES else None


def _large(signature: Signature, count: int) -> set[str]:
    return {f"p{k}" for k, s in enumerate(signature.parameters) if s.elements * FEW >= count}


def _types(signature: Signature) -> dict[str, str]:
    """Return the element types of the arrays that lie on whole accesses."""
    arrays = {f"p{k}": s.dtype.name for k, s in enumerate(signature.parameters)}
    arrays |= {f"r{k}": s.dtype.name for k, s in enumerate(signature.results)}
    return {name: dtype for name, dtype in arrays.items() if name not in signature.misaligned}


def _mostly_merges(wide: Lanes, signature: Signature, count: int) -> bool:
    """Tell whether more than half of the accesses of large arrays take all lanes at once."""
    large = _large(signature, count)
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
