"""Names that nothing else has."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Gives names unlike all that are taken or were given before."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}  # of each stem, up to where all are taken

    def fresh(self, stem: str) -> str:
        """Return `stem`, or numbered: `stem.1`, `stem.2`, ..."""
        name, count = stem, self._counts.get(stem, 0)
        while name in self._taken:
            count += 1
            name = f"{stem}.{count}"
        self._counts[stem] = count
        self._taken.add(name)
        return name
