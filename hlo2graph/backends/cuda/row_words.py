"""The part of a loop whose lanes lie in one row, between two edges, and read words from anywhere.

Words across an edge have a thread an element, of the same block: what they read is near what its
others read. Where the code has no branches, a thread has two words, and reads both of them and its
element of a word across an edge before it waits for any of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.lanes import LANE, Lanes
from hlo2graph.backends.cuda.widen import MOST_VALUES, THREADS, Wide, most_alive
from hlo2graph.hlo import Shape
from hlo2graph.ops.device import Expr, Index

TOGETHER = 2  # words of a thread
_READ = re.compile(r"(?P<head> *const [\w:]+ \w+ = )(?P<value>.*(?:\bp\d+\[|run_at<).*);$")
_STORE = re.compile(r" *r\d+\[.*\] = ")
_LANE = re.compile(rf"\({LANE} \+ (\d+)\)|\b{LANE}\b")  # an element of a word
_THREAD = re.compile(r"\bthread\b")  # the word's number, where a thread has one


@dataclass(frozen=True, slots=True)
class RowWords:
    """Writes it; `element` writes that of an index."""

    emit: ElementEmitter
    shape: Shape
    element: Callable[[Index], None]
    found: Wide

    @property
    def words(self) -> int:
        """Words that are whole; some lie across an edge."""
        return self.shape.elements // self.found.lanes

    @property
    def together(self) -> int:
        """Words of a thread."""
        fits = TOGETHER * most_alive(self.found.lines) <= MOST_VALUES
        return TOGETHER if self.found.is_straight and fits else 1

    @property
    def threads(self) -> int:
        """Threads that it needs."""
        return max(1, -(-self.words // (THREADS * self.together))) * THREADS

    def write(self) -> None:
        """Write all lines."""
        emit, lanes, rest = self.emit, self.found.lanes, self.shape.elements % self.found.lanes
        begin = emit.integer(f"{emit.block_index} * {THREADS * lanes * self.together}")
        with emit.block(""):
            if self.together == 1:
                emit.line(f"const {emit.index_type} first = thread * {lanes};")
                with emit.block(f"if ({self._inside('first')})"):
                    emit.line(f"const int {LANE} = 0;")
                    emit.lines += self.found.lines
            else:
                self._write_together(begin)
        if self.together == 1:
            for edge in self.found.edges:
                test, place = self._edge(edge, begin)
                with emit.block(f"if ({test})"):
                    self.element(emit.element_at(place, self.shape))
        if rest:
            with emit.block(f"if (thread < {rest})"):
                place = emit.integer(f"thread + {self.words * lanes}")
                self.element(emit.element_at(place, self.shape))

    def _write_together(self, begin: Expr) -> None:
        emit, late = self.emit, []
        for edge in self.found.edges:
            test, place = self._edge(edge, begin)
            name, mark = emit.fresh("m"), len(emit.lines)
            emit.line(f"const bool {name} = {test};")
            self.element(emit.element_at(place, self.shape))
            emit.lines[mark + 1 :], stores = _guarded(emit.lines[mark + 1 :], name)
            late += stores
        lines = [_LANE.sub(lambda m: m[1] or "0", line) for line in self.found.lines]
        reads, stores = _guarded([_THREAD.sub("word", line) for line in lines], "is_whole")
        first = f"const {emit.index_type} first = word * {self.found.lanes};"
        body = [
            f"    {first}",
            f"    const bool is_whole = {self._inside('first')};",
            *reads,
            *stores,
        ]
        words = THREADS * self.together
        emit.line(f"const {emit.index_type} word = {emit.block_index} * {words} + threadIdx.x;")
        emit.lines += Lanes(body, "word", self.together, THREADS, whole="", mark="_w").lines
        emit.lines += late

    def _inside(self, first: Expr) -> str:
        """Tell whether there is such a word, and whether it lies across no edge."""
        found = self.found
        column = f"{first} % {found.row}"
        tests = [f"{first} < {self.words * found.lanes}"]
        for edge in found.edges:
            end = edge or found.row
            tests.append(f"!({column} < {end} && {column} > {end - found.lanes})")
        return " && ".join(tests)

    def _edge(self, edge: int, begin: Expr) -> tuple[Expr, Expr]:
        """Return whether a thread has an element of a word across an edge, and which one."""
        emit, (lanes, row) = self.emit, (self.found.lanes, self.found.row)
        number = emit.integer(f"({begin} + {row - 1 - edge}) / {row} + threadIdx.x / {lanes}")
        at = emit.integer(f"{number} * {row}{emit.places.wide} + {edge}")
        block = THREADS * lanes * self.together
        test = f"{at} < {begin} + {block} && {at} < {self.words * lanes}"
        return test, emit.integer(f"{at} / {lanes} * {lanes} + threadIdx.x % {lanes}")


def _guarded(lines: Sequence[str], test: str) -> tuple[list[str], list[str]]:
    """Return lines that read, and lines that write, nothing but where a test holds."""
    reads: list[str] = []
    stores = [f"    if ({test}) {{"]
    for line in lines:
        if _STORE.match(line):
            stores.append(line)
        elif read := _READ.match(line):
            held = f"hlo::read_if({test}, [&] {{ return {read['value']}; }});"
            reads.append(f"{read['head']}{held}")
        else:
            reads.append(line)
    return reads, [*stores, "    }"]
