"""Turn each call of the GPU's library for Cholesky factors into the one that has a kernel here.

In and out: a Module of the same meaning. Calls inside kernels stay as they are.
"""

from __future__ import annotations

import numpy as np

from hlo2graph.hlo import Computation, Instruction, Module, Shape, TupleShape
from hlo2graph.hlo.dtype import S32
from hlo2graph.ops.custom_cusolver import CHOLESKY, is_lower
from hlo2graph.ops.custom_target import result_leaves, target_of
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.values import add_filled, made


def expand_choleskys(module: Module) -> Module:
    """Return `module` with a call of potrf for each call of XLA's own name for it."""
    return redraft(module, "custom-call", _expanded)


def _expanded(draft: Draft) -> Computation:
    for instr in draft.computation.instructions:
        is_factor = instr.opcode == "custom-call" and target_of(instr) == CHOLESKY
        if is_factor and instr.name in draft and is_lower(instr) is not None:
            _expand(draft, instr)
    return draft.done()


def _expand(draft: Draft, instr: Instruction) -> None:
    """Put a call of potrf, and no workspace, into the place of a call."""
    factor, workspace, info = result_leaves(instr)
    found = Shape(S32, factor.dims[:-2])
    lower = "true" if is_lower(instr) else "false"
    call = draft.add(
        instr,
        "custom-call",
        TupleShape((factor, found)),
        instr.operands,
        {
            "custom_call_target": "cusolver_potrf_ffi",
            "backend_config": f"{{lower = {lower}}}",
            "api_version": "API_VERSION_TYPED_FFI",
        },
    )
    triangle, number = draft.leaves(instr, call)
    none = add_filled(draft, instr, workspace, np.zeros((), workspace.dtype.numpy))
    told = draft.add(instr, "reshape", info, (number,))
    draft.become(instr.name, made(instr, "tuple", (triangle, none, told)))
