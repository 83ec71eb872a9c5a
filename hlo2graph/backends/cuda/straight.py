"""Calls that copy nothing: arguments used where they lie, results made where they are wanted.

A call with new arrays waits for what is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Finds where the ports of such calls lie, for a program that writes none of its arguments."""

    __slots__ = ("_all", "_home", "_inputs", "_order", "_positions", "_results", "_written")

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
        results = [k for k in range(len(ports)) if k not in inputs]
        self._inputs, self._results = (
            _Kinds([ports[k].size for k in of], [ports[k].alignment for k in of])
            for of in (inputs, results)
        )
        self._positions = [ports[k].output for k in results]
        self._home = [home[k] for k in results]
        places = {port: place for place, port in enumerate((*inputs, *results))}
        order = [places[k] for k in range(len(ports))]
        self._order = None if order == sorted(order) else order
        self._written, self._all = Spans(written), Spans(everything)

    def placement(
        self, inputs: Sequence[int], results: Sequence[int] | None = None
    ) -> Placement | None:
        """Return where the ports lie for arguments and results at these addresses, None for home.

        None if one of them cannot be where it is given, or a result is in no port.
        """
        if any(map(mod, inputs, self._inputs.alignments)):
            return None
        made, written = self._home, self._written
        if results is not None:
            found = self._elsewhere(results)
            if found is None:
                return None
            made, written = found
        if not written.are_apart_from(inputs, self._inputs.sizes):
            return None
        if self._order is None:
            return (*inputs, *made)
        every = (*inputs, *made)
        return tuple([every[k] for k in self._order])

    def _elsewhere(self, results: Sequence[int]) -> tuple[list[int], Spans] | None:
        """Return where results are made by port, and what is written then."""
        if len(results) != len(self._positions):
            return None
        made = [results[k] for k in self._positions if k is not None]
        sizes = self._results.sizes
        if any(map(mod, made, self._results.alignments)):
            return None
        if not self._all.are_apart_from(made, sizes):
            return None
        spans = sorted(zip(made, map(add, made, sizes), strict=True))
        if any(start < end for (_, end), (start, _) in pairwise(spans)):
            return None
        return made, Spans(spans)
