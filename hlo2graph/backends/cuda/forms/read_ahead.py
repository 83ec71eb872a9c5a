"""Reading ahead: what straight-line code reads at places that are known before it is reached.

Behind a barrier no read may move in front of it, whatever it reads; and a product's results wait at
one for the sums. What is made of them may read more, a bias or a residual, which is under way
meanwhile if it is asked for before. Nor does the compiler join the reads of neighbours that stand
behind one another's arithmetic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo2graph.ops.device import Expr

_INDEX = re.compile(r"const (?:int|long long) (\w+) = (.+);")
_READ = re.compile(r"const ([\w:]+) (\w+) = (hlo::load\(p\d+\[(.+)\]\));")
_DECLARED = re.compile(r"(?:const )?[\w:]+(?: long)? (\w+)(?: = .+|\[.+);")
_NAME = re.compile(r"[a-z]+\d+")


def read_ahead(body: Sequence[str], holds: Expr = "") -> tuple[list[str], list[str]]:
    """Return the reads of a block, for its beginning, and what is left.

    They are for in front of the block where `holds` is what enters it. Lines of blocks inside the
    block stay where they are.
    """
    ahead: list[str] = []
    left: list[str] = []
    inside: set[str] = set()  # what is declared in the block, and stays there
    indent = len(body[0]) - len(body[0].lstrip()) if body else 0
    margin = " " * (2 if holds else indent)
    for line in body:
        text = line.lstrip()
        is_nested = len(line) - len(text) > indent
        index = None if is_nested else _INDEX.fullmatch(text)
        read = None if is_nested else _READ.fullmatch(text)
        if index and inside.isdisjoint(_NAME.findall(index[2])):
            ahead.append(margin + text)
        elif read and inside.isdisjoint(_NAME.findall(read[4])):
            value = f"{holds} ? {read[3]} : {read[1]}{{}}" if holds else read[3]
            ahead.append(f"{margin}const {read[1]} {read[2]} = {value};")
        else:
            left.append(line)
            if declared := _DECLARED.match(text):
                inside.add(declared[1])
    return ahead, left
