"""Choosing the layout of products, so that the transpose behind them moves nothing.

In and out: a Module of the same meaning, of which some arrays lie otherwise. Where all who read a
dot read it transposed in one way, it is written as they want it: the transpose is then only another
way to see the same bytes, and so is a reshape of it that joins dimensions. Not where a library
could no longer multiply so, nor where anything else depends on how these arrays lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hlo2graph.hlo import Computation, Instruction, Layout, Module, Shape
from hlo2graph.ops.matmul import product_of
from hlo2graph.ops.views import is_view
from hlo2graph.passes.draft import Draft
from hlo2graph.passes.redraft import redraft
from hlo2graph.passes.rules.dots import lies_freely
from hlo2graph.passes.rules.values import numbers


def lay_out_dots(module: Module) -> Module:
    """Return `module` with the dots of all computations that become thunks laid out."""
    return redraft(module, "dot", _laid_out)


def _laid_out(draft: Draft) -> Computation:
    dots = [name for name, instr in draft.instructions.items() if instr.opcode == "dot"]
    for name in dots:
        if name in draft and draft.is_pure(draft[name]) and name != draft.root:
            _choose(draft, draft[name])
    return draft.done()


def _choose(draft: Draft, dot: Instruction) -> None:
    """Lay one dot out as its transposes want it."""
    lay_out(draft, dot, lambda shape: _can_be_written(draft, dot, shape))


def lay_out(draft: Draft, made: Instruction, can_be: Callable[[Shape], bool]) -> None:
    """Lay one array out as its transposes want it, if it can be made so."""
    turned = draft.users_of(made.name)
    orders = {numbers(user) for user in turned if user.opcode == "transpose"}
    if len(orders) != 1 or any(user.opcode != "transpose" for user in turned):
        return
    assert isinstance(made.shape, Shape)
    shape = made.shape.with_layout(Layout(orders.pop()[::-1]))
    if can_be(shape) and all(_can_move(draft, user, made.shape) for user in turned):
        draft.become(made.name, replace(made, shape=shape))
        for user in turned:
            draft.become(user.name, replace(user, shape=_row_major(user.shape)))


def _can_be_written(draft: Draft, dot: Instruction, shape: Shape) -> bool:
    """Tell whether a library multiplies into `shape`, if one multiplies at all."""
    assert isinstance(dot.shape, Shape)
    if len(dot.operands) != 2 or not shape.elements:
        return False
    lhs, rhs = (draft.shape(name) for name in dot.operands)
    before = product_of(dot, lhs, rhs, dot.shape)
    return before is None or product_of(dot, lhs, rhs, shape) is not None


def _can_move(draft: Draft, turned: Instruction, before: Shape) -> bool:
    """Tell whether a transpose may be row-major, and whether anybody gains by that."""
    assert isinstance(turned.shape, Shape)
    if not is_view(turned, before):
        return turned.shape.is_row_major
    users = draft.users_of(turned.name)
    shape = _row_major(turned.shape)
    gains = (
        user.opcode == "reshape" and is_view(user, shape) and not is_view(user, turned.shape)
        for user in users
    )
    return lies_freely(draft, turned.name) and any(gains)


def _row_major(shape: object) -> Shape:
    assert isinstance(shape, Shape)
    return shape.with_layout(Layout(tuple(range(shape.rank))[::-1]))
