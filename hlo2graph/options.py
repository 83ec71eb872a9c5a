"""What a caller can choose: the planning flags, their values and what they default to.

Imports nothing heavy, so that the command line can name the choices without loading the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from operator import index
from typing import SupportsIndex, TypeAlias, TypedDict

from hlo2graph.errors import InputError

Observer: TypeAlias = Callable[[str, str], None]  # stage, its text

TARGETS = ("auto", "host", "sm_80", "sm_90")
FUSE = ("none", "default")
SCHEDULES = ("concurrent", "serialize")
REFERENCES = ("host", "xla", "none")
BACKENDS = ("auto", "host", "cuda")
MATMUL_PRECISIONS = ("default", "high", "highest")
POINTERS = ("auto", "copy", "update", "cache", "recapture", "table")
BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
QUANTITY = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)\s*")  # a number and its unit
TEMPORARIES = ("persistent", "graph", "shared")


class PlanOptions(TypedDict, total=False):
    """What decides a plan, by keyword; each is a flag of the command line too.

    target: what the plan is for: host, sm_80, sm_90, or auto, what `run` would take here.
    fuse: none or default; left out, none for host and default for sm_NN, where modules that XLA
        has scheduled keep the fusions they have.
    schedule: concurrent (edges are the data's hazards) or serialize (each thunk waits for the
        one before).
    memory_budget: bytes that the arena should fit into (65536, "64KiB"), at the price of reuse
        edges.
    max_buffer_reuse: how often the same bytes may go to another value early, at the price of
        reuse edges: 0 never, -1 any number of times.
    """

    target: str
    fuse: str | None
    schedule: str
    memory_budget: int | str | None
    max_buffer_reuse: int


@dataclass(frozen=True, slots=True)
class Options:
    """PlanOptions with its defaults, checked."""

    target: str = "auto"
    fuse: str | None = None
    schedule: str = "concurrent"
    memory_budget: int | str | None = None
    max_buffer_reuse: int = 0

    def __post_init__(self) -> None:
        check_choice("target", self.target, TARGETS)
        check_choice("schedule", self.schedule, SCHEDULES)
        if self.fuse is not None:
            check_choice("fuse", self.fuse, FUSE)
        if not _is_count(self.max_buffer_reuse, -1):
            raise InputError(f"max_buffer_reuse is -1, 0 or more, not {self.max_buffer_reuse!r}")
        if self.memory_budget is not None and not _is_count(self.budget, 0):
            raise InputError(f"memory_budget is a number of bytes, not {self.memory_budget!r}")

    @property
    def budget(self) -> int | None:
        """The memory budget in bytes."""
        if not isinstance(self.memory_budget, str):
            return self.memory_budget
        try:
            return read_size(self.memory_budget)
        except ValueError as error:
            raise InputError(f"memory_budget: {error}") from None

    @property
    def machine(self) -> str:
        """The target; `auto`, where nobody has asked what is here, is the host."""
        return "host" if self.target == "auto" else self.target

    @property
    def fusion(self) -> str:
        """The fusion asked for, or what the target takes by itself."""
        return self.fuse or ("none" if self.machine == "host" else "default")


def read_size(text: str) -> int:
    """Return bytes: `4096`, `64KiB`, `1.5MB`. Raises ValueError where it is none."""
    found = QUANTITY.fullmatch(text)
    if not found or found[2].lower() not in BYTES:
        raise ValueError(f"{text!r} is no size; write bytes, or a unit, as in 4096, 64KiB, 1.5MB")
    return int(float(found[1]) * BYTES[found[2].lower()])


def _is_count(given: object, least: int) -> bool:
    return isinstance(given, SupportsIndex) and index(given) >= least


def check_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError, as Python does, for a keyword that `function` does not have."""
    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"
            raise TypeError(f"{function}() has no keyword {name}{hint}")


def check_choice(option: str, given: str, allowed: tuple[str, ...]) -> None:
    """Raise InputError unless `given` is one of the values that the option has."""
    if given not in allowed:
        raise InputError(f"{option} is one of {', '.join(allowed)}, not {given!r}")


def check_rounds(option: str, given: str) -> None:
    """Raise InputError unless `given` is auto, never or a number of rounds."""
    if given not in ("auto", "never") and not (given.isascii() and given.isdigit()):
        raise InputError(f"{option} is auto, never or a number of rounds, not {given!r}")


def chosen(name: str, value: str) -> str:
    """Return how to choose a value, by the flag and by the keyword argument of the same name."""
    between = "=" if value.startswith("-") else " "
    return f"{flags_of([name])}{between}{value} (in Python {name}={value!r})"


def both_names(names: Iterable[str]) -> str:
    """Return options as the command line has them, and as Python has them."""
    held = list(names)
    return f"{flags_of(held)} (in Python {', '.join(f'{name}=' for name in held)})"


def flags_of(names: Iterable[str]) -> str:
    """Return options as the command line has them, one after another."""
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)
