"""Where everything in a picture stands: boxes in boxes, and the ways of arrows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from hlo2graph.inspect.page.layers import GAP_X, Placed, Size, place
from hlo2graph.inspect.picture import Group, Node, Picture
from hlo2graph.inspect.picture.labels import label_lines
from hlo2graph.inspect.picture.model import OUTERMOST

LETTER, LINE, PAD = 6.2, 14.0, 8.0  # of the font that the page draws with
LEAST, MOST = 70.0, 330.0  # width of a node
TITLE = 18.0  # height of a frame's label


@dataclass(frozen=True, slots=True)
class Rect:
    """A box: its left upper corner, width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(slots=True)
class Layout:
    """Boxes of nodes and of groups by id; points that each arrow passes, in the arrows' order."""

    nodes: dict[str, Rect] = field(default_factory=dict)
    groups: dict[str, Rect] = field(default_factory=dict)
    ways: list[tuple[tuple[float, float], ...]] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


def lay_out(picture: Picture) -> Layout:
    """Return where the picture's nodes, frames and arrows are."""
    maker = _Maker(picture)
    size = maker.measure(OUTERMOST)
    found = Layout(ways=[() for _ in picture.arrows], width=size.width, height=size.height)
    maker.put(OUTERMOST, 0.0, 0.0, found)
    return found


class _Maker:
    """Measures groups from the inside out, then puts them from the outside in."""

    def __init__(self, picture: Picture) -> None:
        self._members: dict[str, list[str]] = defaultdict(list)  # boxes of a group: nodes, frames
        self._nodes = {node.id: node for node in picture.nodes}
        self._frames = {group.id: group for group in picture.groups if not group.owner}
        self._owned: dict[str, list[Group]] = defaultdict(list)
        self._parent = {node.id: node.group for node in picture.nodes}
        self._owner = {group.id: group.owner for group in picture.groups}
        for group in picture.groups:
            self._parent.setdefault(group.id, group.parent)
            if group.owner:
                self._owned[group.owner].append(group)
        seen: set[str] = set()
        for node in picture.nodes:
            box = node.id
            while box not in seen:
                seen.add(box)
                home = self._parent[box]
                self._members[home].append(box)
                if home not in self._frames:
                    break
                box = home
        self._arrows: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
        for at, arrow in enumerate(picture.arrows):
            self._note(at, arrow.src, arrow.dst)
        self._sizes: dict[str, Size] = {}
        self._placed: dict[str, Placed] = {}

    def _way(self, box: str) -> list[tuple[str, str]]:
        """Return the groups around a box, from the outermost on, each with the box in it."""
        way = []
        while box:
            group = self._parent[box]
            way.append((group, box))
            box = self._owner.get(group) or group
        return way[::-1]

    def _note(self, at: int, src: str, dst: str) -> None:
        """Keep an arrow with the innermost group that holds both ends."""
        for (group, one), (other, two) in zip(self._way(src), self._way(dst), strict=False):
            if group == other and one != two:
                self._arrows[group].append((at, one, two))
                return

    def measure(self, group: str) -> Size:
        """Place what a group holds; return how large it is."""
        boxes = self._members[group]
        for box in boxes:
            if box in self._frames:
                inner = self.measure(box)
                self._sizes[box] = Size(inner.width + 2 * PAD, inner.height + TITLE + 2 * PAD)
            else:
                self._sizes[box] = self._node(self._nodes[box])
        number = {box: at for at, box in enumerate(boxes)}
        arrows = [(number[src], number[dst]) for _, src, dst in self._arrows[group]]
        self._placed[group] = found = place([self._sizes[box] for box in boxes], arrows)
        return found.size

    def _node(self, node: Node) -> Size:
        lines = label_lines(node, with_time=False)
        width = max(LEAST, min(MOST, LETTER * max(map(len, lines)) + 2 * PAD))
        height = LINE * len(lines) + PAD
        inside = [self.measure(group.id) for group in self._owned[node.id]]
        if not inside:
            return Size(width, height)
        across = sum(s.width + 2 * PAD for s in inside) + GAP_X * (len(inside) - 1)
        return Size(
            max(width, across + 2 * PAD),
            height + max(s.height for s in inside) + TITLE + 3 * PAD,
        )

    def put(self, group: str, x: float, y: float, found: Layout) -> None:
        """Say where a group's boxes are, its left upper corner being at (x, y)."""
        placed = self._placed[group]
        for box, (cx, cy) in zip(self._members[group], placed.centres, strict=True):
            size = self._sizes[box]
            rect = Rect(x + cx - size.width / 2, y + cy - size.height / 2, size.width, size.height)
            if box in self._frames:
                found.groups[box] = rect
                self.put(box, rect.x + PAD, rect.y + TITLE + PAD, found)
            else:
                found.nodes[box] = rect
                self._inside(box, rect, found)
        for (at, _, _), way in zip(self._arrows[group], placed.ways, strict=True):
            found.ways[at] = tuple((x + px, y + py) for px, py in way)

    def _inside(self, box: str, rect: Rect, found: Layout) -> None:
        """Put the groups that a node owns below its label, side by side."""
        top = rect.y + LINE * len(label_lines(self._nodes[box], with_time=False)) + PAD
        left = rect.x + PAD
        for group in self._owned[box]:
            size = self._placed[group.id].size
            height = rect.y + rect.height - top - PAD
            found.groups[group.id] = Rect(left, top, size.width + 2 * PAD, height)
            self.put(group.id, left + PAD, top + TITLE + PAD, found)
            left += size.width + 2 * PAD + GAP_X
