"""The picture: flat lists, so that parts can be left out and every format is written in one pass.

A sequence of thunks, or a computation, is a group; the outermost one is ''. A node that holds
others (a loop, a fusion) owns their groups. Nodes of one group stand in program order, and no id
occurs twice.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

OUTERMOST = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A box.

    kind: what it is, which decides its colour. lines: what stands below the name. group: the
    sequence it is in. names: what else a user may call it. key: equal for nodes that do the same
    work. count: how many it is drawn in place of. stands_for: the ids of nodes that are not drawn
    because they are like it, itself included. seconds: how long it takes, where that is known.
    """

    id: str
    name: str
    kind: str
    lines: tuple[str, ...] = ()
    tooltip: str = ""
    group: str = OUTERMOST
    names: frozenset[str] = frozenset()
    key: Hashable = None
    is_critical: bool = False
    seconds: float | None = None
    count: int = 1
    stands_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """`dst` waits for `src`, or uses it; `reason` decides its style.

    is_back: it leads from one of the nodes that a node stands for to the next, so that it may close
    a circle.
    """

    src: str
    dst: str
    reason: str
    label: str = ""
    tooltip: str = ""
    is_critical: bool = False
    count: int = 1
    is_back: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A frame around nodes: a sequence inside `owner`, or, without one, a part of `parent`.

    Such a part stands for `count` that are alike.
    """

    id: str
    label: str
    owner: str = ""
    parent: str = OUTERMOST
    count: int = 1


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is drawn; `caption` is text lines, the first of them the title."""

    caption: tuple[str, ...]
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    groups: tuple[Group, ...] = ()
    owners: frozenset[str] = field(init=False, compare=False, repr=False, default=frozenset())

    def __post_init__(self) -> None:
        owners = frozenset(group.owner for group in self.groups if group.owner)
        object.__setattr__(self, "owners", owners)
