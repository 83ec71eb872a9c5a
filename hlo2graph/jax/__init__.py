"""JAX functions as graphs: `jit` and `compile`, used as `jax.jit` is used. Needs jax.

    import hlo2graph.jax

    @hlo2graph.jax.jit
    def step(weights, batch): ...

Arguments and results are pytrees of JAX's arrays, on the device without copies. What cannot run as
a graph runs with `jax.jit`, and is said once.
"""

from importlib.util import find_spec

if find_spec("jax") is None:
    raise ImportError("hlo2graph.jax takes jax: pip install 'hlo2graph[jax]'")

from hlo2graph.jax.function import GraphFunction, compile, jit
from hlo2graph.jax.program import CompiledFunction

__all__ = ["CompiledFunction", "GraphFunction", "compile", "jit"]
