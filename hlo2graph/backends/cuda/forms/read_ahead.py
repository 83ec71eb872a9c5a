"""Reading ahead: what straight-line code reads at places that are known before it is reached.

Behind a barrier no read may move in front of it, whatever it reads; and a product's results wait at
one for the sums. What is made of them may read more, a bias or a residual, which is under way
meanwhile if it is asked for before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo2graph.ops.device import Expr

_INDEX = re.compile(r"const (?:int|long long) (\w+) = (.+);")
_READ = re.compile(r"const ([\w:]+) (\w+) = (hlo::load\(p\d+\[(.+)\]\));")
_DECLARED = re.compile(r"(?:const )?[\w:]+(?: long)? (\w+)(?: = .+|\[.+);")
_NAME = re.compile(r"[a-z]+\d+")


def read_ahead(body: Sequence[str], holds: Expr) -> tuple[list[str], list[str]]:
    """Return the reads of a block, for in front of it, and what is left; `holds` enters the block.

    Lines of blocks inside the block stay where they are.
    """
    ahead: list[str] = []
    left: list[str] = []
    inside: set[str] = set()  # what is declared in the block, and stays there
    indent = len(body[0]) - len(body[0].lstrip()) if body else 0
    for line in body:
        text = line.lstrip()
        is_nested = len(line) - len(text) > indent
        index = None if is_nested else _INDEX.fullmatch(text)
        read = None if is_nested else _READ.fullmatch(text)
        if index and inside.isdisjoint(_NAME.findall(index[2])):
            ahead.append(f"  {text}")
        elif read and inside.isdisjoint(_NAME.findall(read[4])):
            ahead.append(f"  const {read[1]} {read[2]} = {holds} ? {read[3]} : {read[1]}{{}};")
        else:
            left.append(line)
            if declared := _DECLARED.match(text):
                inside.add(declared[1])
    return ahead, left
