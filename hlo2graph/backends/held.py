"""What an executable holds in memory, and what for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes, of all instances of one executable together; instances share constants.

    On the host there is one instance, and nothing of what belongs to a GPU.

    temporaries: arenas of its own. graphs: how many are instantiated. driver: what the GPU's free
    memory lost as they were, with arenas of theirs; nothing where the driver had room left of
    others. shared: the arena that it takes turns in, and `sharers`, the programs that do.
    in_graphs: what the driver holds for the arenas that graphs allocate themselves, those of every
    executable on this GPU.
    """

    instances: int
    parameters: int
    constants: int
    results: int
    temporaries: int
    graphs: int
    driver: int
    shared: int = 0
    sharers: tuple[str, ...] = ()
    in_graphs: int = 0

    @property
    def total(self) -> int:
        """What it holds alone, the driver's part left out."""
        return self.parameters + self.constants + self.results + self.temporaries
