"""Where names stand in a plot: near what they name, inside a frame, and on nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

LINE, LETTER = 13, 7  # of the plots' font: a line's height, and a letter's width at the most
NEAR = 9  # from the middle of a mark to its name


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the plot; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Tell whether the two have more than an edge in common."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def holds(self, other: Box) -> bool:
        """Tell whether all of the other is inside."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.top <= other.top
            and other.bottom <= self.bottom
        )


def around(x: float, y: float, radius: float) -> Box:
    """Return the square around a place."""
    return Box(x - radius, y - radius, x + radius, y + radius)


@dataclass(slots=True)
class Labels:
    """Gives each label a place of its own.

    taken: what no label may stand on; those that have their places are added.
    curve: what none should stand on, as long as there is room elsewhere.
    """

    frame: Box
    taken: list[Box]
    curve: Sequence[Box] = field(default=())

    def place(self, x: float, y: float, lines: Sequence[str]) -> Box:
        """Return where some lines stand that name what is at a place, as near as there is room."""
        size = max(map(len, lines)) * LETTER, len(lines) * LINE
        free = [box for box in _places(x, y, size, self.frame) if not _any(box, self.taken)]
        clear = (box for box in free if not _any(box, self.curve))
        crowded = Box(x + NEAR, y - size[1], x + NEAR + size[0], y)
        found = next(clear, free[0] if free else crowded)
        self.taken.append(found)
        return found


def _places(x: float, y: float, size: tuple[int, int], frame: Box) -> Iterator[Box]:
    """Yield the places inside the frame, the nearest first: on the right, and above, before."""
    wide, high = size
    for far in range(0, int(frame.right - frame.left), LINE):
        tops = (y - high - far, y - high / 2, y + far)
        for left in (x + NEAR + far / 2, x - NEAR - far / 2 - wide, x + NEAR, x - NEAR - wide):
            for top in tops:
                box = Box(left, top, left + wide, top + high)
                if frame.holds(box):
                    yield box


def _any(box: Box, others: Sequence[Box]) -> bool:
    return any(box.meets(other) for other in others)
