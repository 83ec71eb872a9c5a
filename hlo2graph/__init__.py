"""hlo2graph: compile HLO text into graphs whose edges are exactly the data-flow hazards.

`parse`, `plan` and `compile` make something to call of a text, `save` and `load` keep it in a file,
`set_graph_budget` and `graph_memory` are about the GPU's memory that graphs take.
Each is loaded when first used, so that importing the package (and asking the command line for help)
costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from time import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo2graph.backends.cuda.budget import graph_memory, set_graph_budget
    from hlo2graph.errors import BackendError, HloError, InputError
    from hlo2graph.pipeline import compile, parse, plan
    from hlo2graph.saved.reading import load
    from hlo2graph.saved.writing import save

__version__ = "0.2.0"
BEGUN = time()  # when the first of our code was loaded
__all__ = [
    "BackendError",
    "HloError",
    "InputError",
    "__version__",
    "compile",
    "graph_memory",
    "load",
    "parse",
    "plan",
    "save",
    "set_graph_budget",
]

_HOMES = {
    "BackendError": "hlo2graph.errors",
    "HloError": "hlo2graph.errors",
    "InputError": "hlo2graph.errors",
    "compile": "hlo2graph.pipeline",
    "graph_memory": "hlo2graph.backends.cuda.budget",
    "load": "hlo2graph.saved.reading",
    "parse": "hlo2graph.pipeline",
    "plan": "hlo2graph.pipeline",
    "save": "hlo2graph.saved.writing",
    "set_graph_budget": "hlo2graph.backends.cuda.budget",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hlo2graph.collector import paused

    with paused():
        found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
