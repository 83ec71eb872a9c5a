"""A traced JAX function to HLO text.

What the function closes over becomes parameters in front of its arguments, so that weights are not
written out as constants, and can stay on the device where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr

from hlo2graph.errors import UnsupportedError
from hlo2graph.importers.worker import printed


@dataclass(frozen=True, slots=True)
class Lowered:
    """HLO text, and what its parameters and results are to JAX.

    The parameters are `constants`, then the function's arguments; `donated` are positions of these.
    """

    text: str
    name: str
    constants: tuple[Any, ...]
    results: tuple[Any, ...]  # as JAX's abstract values
    tree: Any  # of the results
    donated: tuple[int, ...]


def lower(traced: Any, platform: str) -> Lowered:
    """Lower what `jax.jit(f).trace(...)` returned, for cpu or cuda.

    Raises:
        UnsupportedError: it does something beside computing results.
    """
    closed: ClosedJaxpr = traced.jaxpr
    if closed.effects:
        named = ", ".join(sorted({str(effect) for effect in closed.effects}))
        raise UnsupportedError(f"it has side effects: {named}")
    donated = tuple(
        position for position, info in enumerate(jax.tree.leaves(traced.args_info)) if info.donated
    )
    first = len(closed.consts)

    def flat(*values: Any) -> Any:
        return eval_jaxpr(closed.jaxpr, values[:first], *values[first:])

    flat.__name__ = traced.fun_name
    wanted = [_described(jax.typeof(value)) for value in closed.consts]
    wanted += [_described(aval) for aval in closed.in_avals]
    jitted = jax.jit(flat, keep_unused=True, donate_argnums=[first + k for k in donated])
    lowered = jitted.trace(*wanted).lower(lowering_platforms=(platform,))
    proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return Lowered(
        printed(proto),
        traced.fun_name,
        tuple(closed.consts),
        tuple(closed.out_avals),
        traced.out_tree,
        donated,
    )


def _described(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
