"""The text of a kernel's body as a tree: statements, and blocks of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Block:
    """`head {`, or `{` alone, the nodes inside, and `}`."""

    head: str
    body: tuple[Node, ...]


Node: TypeAlias = "str | Block"


def parsed(lines: Iterator[str]) -> Iterator[Node]:
    """Take lines without margins, up to the end of a block or of all, as a tree."""
    for line in lines:
        if line == "}":
            return
        yield Block(line[:-1].strip(), tuple(parsed(lines))) if line.endswith("{") else line


def chains(nodes: Sequence[Node]) -> list[list[Node]]:
    """Part nodes into single ones and ifs with their elses."""
    found: list[list[Node]] = []
    for node in nodes:
        if isinstance(node, Block) and node.head.startswith("else"):
            found[-1].append(node)
        else:
            found.append([node])
    return found


def written(node: Node) -> Iterator[str]:
    """Yield the lines of a node."""
    if isinstance(node, str):
        yield node
        return
    yield f"{node.head} {{".lstrip()
    for inner in node.body:
        yield from (f"  {line}" for line in written(inner))
    yield "}"
