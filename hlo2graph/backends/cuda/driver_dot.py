"""The driver's own drawing of a graph: what it holds, in the driver's words."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hlo2graph.backends.cuda.built import BuiltGraph
from hlo2graph.backends.cuda.driver import call, cuda
from hlo2graph.backends.cuda.executable import CudaExecutable


def driver_dot(executable: CudaExecutable) -> str:
    """Return what cuGraphDebugDotPrint writes of the executable's graph, with all parameters.

    Raises:
        BackendError: the driver refuses.
    """
    built = executable.graph
    assert isinstance(built, BuiltGraph), "the driver draws one graph"
    verbose = int(cuda.CUgraphDebugDot_flags.CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)
    with TemporaryDirectory() as folder:
        path = Path(folder, "graph.dot")
        doing = f"drawing {executable.plan.name}"
        call(cuda.cuGraphDebugDotPrint, built.graph, bytes(path), verbose, doing=doing)
        return path.read_text(errors="replace")
