"""Repeated layers once: stretches of nodes that follow each other and do the same work.

Two stretches are alike where their nodes have the same keys in the same order and the same arrows
between them; arrows from and to other nodes may differ. Of all repeats those come first that leave
out the most nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from hlo2graph.inspect.figures import plural
from hlo2graph.inspect.picture.model import Arrow, Group, Node, Picture

Keys: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Inner: TypeAlias = dict[int, list[tuple[int, str]]]
"""By target: sources and reasons of the arrows between nodes of one group, by position."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` stretches of `period` nodes each; the first begins at position `start`."""

    start: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """The position behind the last one."""
        return self.start + self.period * self.count

    @property
    def saved(self) -> int:
        """How many nodes need not be drawn."""
        return self.period * (self.count - 1)


def folded(picture: Picture) -> Picture:
    """Return the picture with each repeat drawn once, in a frame that says how often."""
    members: dict[str, list[Node]] = defaultdict(list)
    for node in picture.nodes:
        members[node.group].append(node)
    place = {node.id: at for nodes in members.values() for at, node in enumerate(nodes)}
    home = {node.id: node.group for node in picture.nodes}
    inner: dict[str, Inner] = defaultdict(lambda: defaultdict(list))
    for arrow in picture.arrows:
        if home[arrow.src] == home[arrow.dst]:
            sources = inner[home[arrow.src]][place[arrow.dst]]
            sources.append((place[arrow.src], arrow.reason))
    folding = _Folding({}, {}, {}, [])
    for group, nodes in members.items():
        folding.group(group, nodes, repeats_of(nodes, inner[group]))
    return folding.applied(picture)


def repeats_of(nodes: list[Node], inner: Inner) -> list[Repeat]:
    """Return repeats that do not overlap, in program order."""
    numbers: dict[object, int] = {}
    keys = np.array([numbers.setdefault(n.key, len(numbers)) for n in nodes], np.int32)
    taken = np.zeros(len(nodes) + 1, np.int32)
    found: list[Repeat] = []
    for candidate in sorted(_runs(keys), key=lambda r: (-r.saved, r.period, r.start)):
        for free in _free(candidate, taken):
            alike = _alike(free, inner)
            if alike is not None:
                taken[alike.start : alike.end] = 1
                found.append(alike)
    return sorted(found, key=lambda r: r.start)


def _runs(keys: Keys) -> Iterator[Repeat]:
    """Yield the longest stretches in which the keys repeat, for every period."""
    for period in range(1, len(keys) // 2 + 1):
        same = keys[period:] == keys[:-period]
        if int(np.count_nonzero(same)) < period:
            continue
        steps = np.flatnonzero(np.diff(same, prepend=False, append=False))
        for start, end in zip(steps[::2].tolist(), steps[1::2].tolist(), strict=True):
            if end - start >= period:
                yield Repeat(start, period, (end - start) // period + 1)


def _free(repeat: Repeat, taken: Keys) -> Iterator[Repeat]:
    """Yield the parts of a repeat whose nodes no other has taken, where they are repeats still."""
    held = taken[repeat.start : repeat.end]
    if not held.any():
        yield repeat
        return
    steps = np.flatnonzero(np.diff(held == 0, prepend=False, append=False))
    for start, end in zip(steps[::2].tolist(), steps[1::2].tolist(), strict=True):
        if end - start >= 2 * repeat.period:
            yield Repeat(repeat.start + start, repeat.period, (end - start) // repeat.period)


def _alike(repeat: Repeat, inner: Inner) -> Repeat | None:
    """Return the most stretches in a row that have the same arrows inside; None for one alone."""
    shapes = [
        frozenset(
            (src - start, dst - start, reason)
            for dst in range(start, start + repeat.period)
            for src, reason in inner.get(dst, ())
            if src >= start
        )
        for start in range(repeat.start, repeat.end, repeat.period)
    ]
    best, first = (0, 0), 0
    for at, shape in enumerate(shapes):
        if shape != shapes[first]:
            first = at
        best = max(best, (at + 1 - first, -first))
    count, first = best[0], -best[1]
    if count < 2:
        return None
    return Repeat(repeat.start + first * repeat.period, repeat.period, count)


@dataclass(frozen=True, slots=True)
class _Folding:
    """Which node stands for which, and in which frame."""

    stands: dict[str, tuple[str, int]]  # by id: who stands for it, and which stretch it is in
    frames: dict[str, str]  # of nodes that stay, by id
    counts: dict[str, int]  # of nodes alone that stand for several
    made: list[Group]

    def group(self, group: str, nodes: list[Node], repeats: list[Repeat]) -> None:
        for repeat in repeats:
            frame = f"fold_{nodes[repeat.start].id}"
            for at in range(repeat.start, repeat.end):
                stretch, offset = divmod(at - repeat.start, repeat.period)
                chosen = nodes[repeat.start + offset]
                self.stands[nodes[at].id] = chosen.id, stretch
                if repeat.period > 1:
                    self.frames[chosen.id] = frame
                else:
                    self.counts[chosen.id] = repeat.count
            if repeat.period > 1:
                label = f"{plural(repeat.period, 'node')}, {repeat.count} times"
                self.made.append(Group(frame, label, parent=group, count=repeat.count))

    def applied(self, picture: Picture) -> Picture:
        gone = {id for id, (chosen, _) in self.stands.items() if id != chosen}
        groups = []
        for group in picture.groups:  # outer ones come first
            if group.owner in gone or group.parent in gone:
                gone.add(group.id)
            else:
                groups.append(replace(group, parent=self.frames.get(group.owner, group.parent)))
        critical = {n.id for n in picture.nodes if n.is_critical}
        critical = {self._chosen(id) for id in critical}
        nodes = [n for n in picture.nodes if n.id not in gone and n.group not in gone]
        lost = {n.id for n in picture.nodes if n.group in gone}
        alike: dict[str, list[Node]] = defaultdict(list)
        for node in picture.nodes:
            if node.id in self.stands:
                alike[self._chosen(node.id)].append(node)
        drawn = [
            replace(
                node,
                group=self.frames.get(node.id, node.group),
                names=node.names.union(*(other.names for other in alike[node.id])),
                count=self.counts.get(node.id, 1),
                stands_for=tuple(other.id for other in alike[node.id]),
                is_critical=node.id in critical,
            )
            for node in nodes
        ]
        made = [frame for frame in self.made if frame.parent not in gone]
        left = sum(frame.count > 1 for frame in made) + len(self.counts)
        note = f"{plural(len(nodes), 'node')} stand for {len(picture.nodes):,}" if left else ""
        return replace(
            picture,
            caption=(*picture.caption, note) if note else picture.caption,
            nodes=tuple(drawn),
            arrows=tuple(self._arrows(picture, lost)),
            groups=(*groups, *made),
        )

    def _chosen(self, id: str) -> str:
        return self.stands.get(id, (id, 0))[0]

    def _arrows(self, picture: Picture, lost: set[str]) -> Iterator[Arrow]:
        """Yield the arrows between nodes that stay, one for those that fall together."""
        together: dict[tuple[str, str, str, bool], list[Arrow]] = defaultdict(list)
        for arrow in picture.arrows:
            if arrow.src in lost or arrow.dst in lost:
                continue
            src, first = self.stands.get(arrow.src, (arrow.src, 0))
            dst, second = self.stands.get(arrow.dst, (arrow.dst, 0))
            is_back = first != second and self._frame(src) == self._frame(dst)
            together[src, dst, arrow.reason, is_back].append(arrow)
        for (src, dst, _, is_back), arrows in together.items():
            critical = any(a.is_critical for a in arrows)
            yield replace(
                arrows[0],
                src=src,
                dst=dst,
                is_back=is_back,
                count=len(arrows),
                is_critical=critical,
            )

    def _frame(self, id: str) -> str:
        """Return the frame that a node is in; a node that stands for several is one by itself."""
        return self.frames.get(id, id)
