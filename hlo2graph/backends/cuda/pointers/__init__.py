"""Ways to run a graph over arrays that lie elsewhere at each call; all give the same results."""

from __future__ import annotations

from collections.abc import Callable

from hlo2graph.backends.cuda.pointers.auto import Auto
from hlo2graph.backends.cuda.pointers.cache import Cache
from hlo2graph.backends.cuda.pointers.copy import Copy
from hlo2graph.backends.cuda.pointers.recapture import Recapture
from hlo2graph.backends.cuda.pointers.strategy import Site, Strategy, Tally
from hlo2graph.backends.cuda.pointers.table import Table
from hlo2graph.backends.cuda.pointers.update import Update

__all__ = ["STRATEGIES", "Site", "Strategy", "Tally"]

STRATEGIES: dict[str, Callable[[Site], Strategy]] = {
    "auto": Auto,
    "copy": Copy,
    "update": Update,
    "cache": Cache,
    "recapture": Recapture,
    "table": Table,
}
