"""Whose the device memory is that this process holds: what an error names where none is left.

One entry a block, put in and taken out by single operations on a dict: a block may go at any moment
on any thread, in the middle of another's allocation too.
"""

from __future__ import annotations

from collections import defaultdict

from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.errors import BackendError

NAMED = 3  # owners that an error names
OTHERS = "working memory"

_HELD: dict[int, tuple[str, int]] = {}  # by a block's address: whose it is, and its bytes


def hold(address: int, owner: str, size: int) -> None:
    """Count a block in."""
    _HELD[address] = owner or OTHERS, size


def let_go(address: int) -> None:
    """Count a block out."""
    _HELD.pop(address, None)


def largest_owners() -> list[tuple[str, int, int]]:
    """Return owners with their bytes and blocks, the largest first."""
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for owner, size in list(_HELD.values()):
        sizes[owner].append(size)
    found = [(owner, sum(held), len(held)) for owner, held in sizes.items()]
    return sorted(found, key=lambda each: (-each[1], each[0]))


def room_text() -> str:
    """Say how much memory is free, and whose the most is in this process."""
    parts = []
    try:
        free, total = call(cuda.cuMemGetInfo)
        parts.append(f"{int(free):,} of the GPU's {int(total):,} are free")
    except BackendError:  # the error that this is a part of says more
        pass
    owners = largest_owners()
    listed = [
        f"{owner} {size:,} in {count:,} block{'s' * (count > 1)}"
        for owner, size, count in owners[:NAMED]
    ]
    if rest := sum(size for _, size, _ in owners[NAMED:]):
        listed.append(f"others {rest:,}")
    parts.append(f"of this process: {', '.join(listed) or 'none'}")
    return "; ".join(parts)
