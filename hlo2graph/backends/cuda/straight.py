"""Calls that copy nothing: arguments used where they lie, results made where they are wanted.

A call with new arrays waits for what is done here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from operator import add, mod
from typing import NamedTuple, TypeAlias

from hlo2graph.backends.cuda.ports import Placement, Port
from hlo2graph.backends.cuda.spans import Spans

Span: TypeAlias = tuple[int, int]


class _Kinds(NamedTuple):
    sizes: Sequence[int]
    alignments: Sequence[int]


class Straight:
    """Finds where the ports of such calls lie."""

    __slots__ = (
        *("_all", "_at_home", "_home", "_in_place", "_inputs", "_left", "_made", "_order"),
        *("_over", "_read", "_read_at", "_results", "_written"),
    )

    def __init__(
        self,
        ports: Sequence[Port],
        inputs: Sequence[int],
        home: Placement,
        written: Sequence[Span],
        everything: Sequence[Span],
    ) -> None:
        """Prepare calls.

        inputs: the port of each argument.
        home: where the instance's own memory for the ports is.
        written: what a call writes whose results stay at home.
        everything: all of the instance's own memory.
        """
        made = [k for k in range(len(ports)) if k not in inputs]
        read = [at for at, k in enumerate(inputs) if not ports[k].is_written]
        over = [at for at, k in enumerate(inputs) if ports[k].is_written]
        self._inputs, self._made = _kinds(ports, inputs), _kinds(ports, made)
        self._read, self._over = (_kinds(ports, [inputs[at] for at in of]) for of in (read, over))
        self._read_at = read if over else None
        self._in_place = [(at, ports[inputs[at]].output) for at in over]  # and its result
        taken = [inputs[at] for at in over]
        self._left = [(home[k], home[k] + ports[k].size) for k in taken]  # strategies may write it
        self._results = [ports[k].output for k in made]
        self._home = [home[k] for k in made]
        places = {port: place for place, port in enumerate((*inputs, *made))}
        order = [places[k] for k in range(len(ports))]
        self._order = None if order == sorted(order) else order
        self._written, self._at_home, self._all = written, Spans(written), Spans(everything)

    def placement(
        self,
        inputs: Sequence[int],
        results: Sequence[int] | None = None,
        donated: Collection[int] = (),
    ) -> Placement | None:
        """Return where the ports lie for arguments and results at these addresses, None for home.

        `donated` are the arguments that may be overwritten. None if one of all these cannot be
        where it is given.
        """
        if any(map(mod, inputs, self._inputs.alignments)):
            return None
        made, written = self._home, self._at_home
        if results is not None or self._in_place:
            found = self._elsewhere(inputs, results, donated)
            if found is None:
                return None
            made, written = found
        read = inputs if self._read_at is None else [inputs[k] for k in self._read_at]
        if not written.are_apart_from(read, self._read.sizes):
            return None
        every = (*inputs, *made)
        return every if self._order is None else tuple([every[k] for k in self._order])

    def _elsewhere(
        self, inputs: Sequence[int], results: Sequence[int] | None, donated: Collection[int]
    ) -> tuple[list[int], Spans] | None:
        """Return where results are that take no argument's place, and all that is written."""
        over = []
        for at, result in self._in_place:
            wanted = None if results is None or result is None else results[result]
            if wanted != inputs[at] and (wanted is not None or at not in donated):
                return None
            over.append(inputs[at])
        if results is None:
            spans = self._apart(over, self._over.sizes)
            if spans is None:
                return None
            return self._home, Spans([*spans, *self._written, *self._left])
        made = [results[k] for k in self._results if k is not None]
        if any(map(mod, made, self._made.alignments)):
            return None
        spans = self._apart([*over, *made], [*self._over.sizes, *self._made.sizes])
        return None if spans is None else (made, Spans([*spans, *self._left]))

    def _apart(self, addresses: Sequence[int], sizes: Sequence[int]) -> list[Span] | None:
        """Return what these take, None if they meet each other or the instance's own memory."""
        if not self._all.are_apart_from(addresses, sizes):
            return None
        spans = sorted(zip(addresses, map(add, addresses, sizes), strict=True))
        meet = any(start < end for (_, end), (start, _) in pairwise(spans))
        return None if meet else spans


def _kinds(ports: Sequence[Port], which: Sequence[int]) -> _Kinds:
    return _Kinds([ports[k].size for k in which], [ports[k].alignment for k in which])
