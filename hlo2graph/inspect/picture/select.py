"""Parts of a picture: what is around a node, repeated layers once, the first nodes alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from hlo2graph.errors import InputError, Note
from hlo2graph.inspect.figures import plural
from hlo2graph.inspect.picture.fold import folded
from hlo2graph.inspect.picture.model import Node, Picture

HOPS = 2
EDGES = ("all", "data")
DATA = frozenset({"raw", "operand"})
MOST_NAMED = 4  # candidates that an error names


def selected(
    picture: Picture,
    *,
    edges: str = "all",
    around: str | None = None,
    hops: int | None = None,
    fold: bool = False,
    limit: int | None = None,
) -> Picture:
    """Return the part of a picture that is asked for, with a note of what is left out.

    edges: all, or data for those along which data flows alone.
    around: only this node, and those at most `hops` arrows from it, either way.
    fold: layers that follow each other and are alike, once, with their count.
    limit: the first so many nodes of each group.

    Raises InputError for a node that is not there and for numbers that fit nothing.
    """
    if edges not in EDGES:
        raise InputError(f"edges is one of {', '.join(EDGES)}, not {edges!r}")
    if limit is not None and limit < 1:
        raise InputError("limit is 1 or more")
    if hops is not None and (around is None or hops < 0):
        raise InputError("hops is 0 or more, and goes with around: how far to go from which node")
    if edges == "data":
        kept = tuple(arrow for arrow in picture.arrows if arrow.reason in DATA)
        picture = replace(picture, arrows=kept)
    if around is not None:
        picture = _around(picture, _find(picture, around), HOPS if hops is None else hops)
    if fold:
        picture = folded(picture)
    return picture if limit is None else _first(picture, limit)


def _find(picture: Picture, wanted: str) -> Node:
    """Return the node of that name or id, or the one that holds an instruction of that name."""
    known = [node for node in picture.nodes if wanted == node.name]
    known = known or [node for node in picture.nodes if wanted == node.id]
    known = known or [node for node in picture.nodes if wanted in node.names]
    if len(known) == 1:
        return known[0]
    if known:
        named = ", ".join(f"{node.id} ({node.name})" for node in known[:MOST_NAMED])
        more = ", ..." if len(known) > MOST_NAMED else ""
        raise InputError(
            f"{len(known)} nodes are called {wanted} or hold an instruction of that name",
            notes=(Note(f"say which: {named}{more}"),),
        )
    names = {name for node in picture.nodes for name in (node.name, *node.names)}
    close = get_close_matches(wanted, sorted(names), n=1)
    hint = f"perhaps {close[0]} was meant" if close else "`hlo2graph plan` lists the thunks"
    raise InputError(
        f"no node of this picture is called {wanted}, and none holds an instruction of that name",
        notes=(Note(hint),),
    )


def _around(picture: Picture, centre: Node, hops: int) -> Picture:
    beside: dict[str, list[str]] = {}
    for arrow in picture.arrows:
        beside.setdefault(arrow.src, []).append(arrow.dst)
        beside.setdefault(arrow.dst, []).append(arrow.src)
    reached, edge = {centre.id}, [centre.id]
    for _ in range(hops):
        edge = [
            o for o in dict.fromkeys(n for e in edge for n in beside.get(e, ())) if o not in reached
        ]
        reached.update(edge)
    kept = _with_insides(picture, reached)
    note = f"within {plural(hops, 'hop')} of {centre.name}, {len(reached):,} of " + plural(
        len(picture.nodes), "node"
    )
    return _only(picture, kept, note)


def _with_insides(picture: Picture, reached: Iterable[str]) -> set[str]:
    """Return the nodes, what they hold, and what holds them."""
    owner = {group.id: group.owner for group in picture.groups}
    parent = {group.id: group.parent for group in picture.groups}
    home = {node.id: node.group for node in picture.nodes}
    kept = set(reached)
    inside = {held.id for held in picture.groups if held.owner in kept}
    for id in tuple(kept):
        group = home[id]
        while group:
            kept.add(owner[group])
            group = parent[group]
    for held in picture.groups:  # outer ones come first
        if held.parent in inside:
            inside.add(held.id)
    kept.update(node.id for node in picture.nodes if node.group in inside)
    return kept


def _first(picture: Picture, limit: int) -> Picture:
    """Return the first `limit` nodes of each group, a node in place of the others."""
    seen: dict[str, int] = {}
    dropped: set[str] = set()
    nodes: list[Node] = []
    owner = {group.id: group.owner for group in picture.groups}
    parent = {group.id: group.parent for group in picture.groups}
    for node in picture.nodes:
        group = node.group
        while group and owner[group] not in dropped:
            group = parent[group]
        seen[node.group] = seen.get(node.group, 0) + 1
        if group or seen[node.group] > limit:
            dropped.add(node.id)
        else:
            nodes.append(node)
    notes = [
        Node(
            f"more_{group}" if group else "more",
            f"{plural(count - limit, 'more node')} not drawn",
            "note",
            group=group,
        )
        for group, count in seen.items()
        if count > limit and not (group and owner[group] in dropped)
    ]
    kept = {node.id for node in nodes}
    return _only(replace(picture, nodes=(*nodes, *notes)), kept | {n.id for n in notes})


def _only(picture: Picture, kept: set[str], note: str = "") -> Picture:
    groups = tuple(g for g in picture.groups if not g.owner or g.owner in kept)
    homes = {node.group for node in picture.nodes if node.id in kept}
    homes |= {g.parent for g in groups}
    return replace(
        picture,
        caption=(*picture.caption, note) if note else picture.caption,
        nodes=tuple(n for n in picture.nodes if n.id in kept),
        arrows=tuple(a for a in picture.arrows if a.src in kept and a.dst in kept),
        groups=tuple(g for g in groups if g.id in homes),
    )
