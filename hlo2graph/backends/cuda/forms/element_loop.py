"""The form of loops whose elements go their own ways: a thread an element, for all rounds.

The state is in registers. Every thread computes the scalars for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.backends.cuda.widen import THREADS
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.element_loop import ElementLoop, is_per_element, vote_of


def element_loop_kernel(
    region: ElementLoop,
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
) -> KernelSource | None:
    """Return the kernel of a loop; None where its elements don't go their own ways."""
    loop = computation[region.loop]
    leaves = tuple(loop.shape.leaves())
    if not is_per_element(loop, computations):
        return None
    whole = max(leaves, key=lambda leaf: leaf.rank)
    emit = ElementEmitter(computations, signature.index_type)
    emit.line(f"const {emit.index_type} thread = {emit.block_index} * {THREADS} + threadIdx.x;")
    with emit.block(f"if (thread < {whole.elements})"):
        index = emit.element_at("thread", whole)
        emit.enter(computation)
        places = [index if leaf.dims else () for leaf in leaves]
        inits = [emit.leaf(loop.operands[0], k, at) for k, at in enumerate(places)]
        state = [emit.variable(s.dtype, v) for s, v in zip(leaves, inits, strict=True)]
        _write_rounds(emit, loop, leaves, state)
        emit.leave()
        _store(emit, [(leaves[n], places[n], state[n]) for n in region.results], whole)
    text = signature.declare(emit.needed_lines(), THREADS)
    grid = blocks_for(whole.elements, THREADS)
    return KernelSource(signature.name, text, grid, THREADS, is_bare=True)


def _write_rounds(
    emit: ElementEmitter, loop: Instruction, leaves: Sequence[Shape], state: Sequence[Expr]
) -> None:
    """Write all rounds: what one makes of the state is rounded as if it were stored."""
    condition = emit.computations[str(loop.attrs["condition"])]
    asked = vote_of(condition, emit.computations) or condition.root
    with emit.block("while (true)"):
        emit.enter(condition, tuple(state))
        goes_on = emit.leaf(asked, 0, ())
        emit.leave()
        emit.line(f"if (!{goes_on}) break;")
        made = emit.call(str(loop.attrs["body"]), state)
        after = [emit.stored(leaf.dtype, v) for leaf, v in zip(leaves, made, strict=True)]
        held = [emit.bind(s.dtype, f"hlo::load({v})") for s, v in zip(leaves, after, strict=True)]
        for name, value in zip(state, held, strict=True):
            emit.line(f"{name} = {value};")


def _store(emit: ElementEmitter, found: Sequence[tuple[Shape, Index, Expr]], whole: Shape) -> None:
    for number, (leaf, at, name) in enumerate(found):
        first = "if (thread == 0) " if whole.dims and not leaf.dims else ""
        place = f"r{number}[{emit.offset(leaf, at)}]"
        emit.line(f"{first}{place} = {emit.stored(leaf.dtype, name)};")
