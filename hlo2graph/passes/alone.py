"""What passes are on devices whose blocks cannot read each other's shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps

from hlo2graph.hlo import Module
from hlo2graph.passes.order import Pass
from hlo2graph.passes.split_convolutions import split_convolutions
from hlo2graph.passes.split_reductions import split_reductions


def _alone(rewrite: Callable[[Module, int], Module]) -> Pass:
    @wraps(rewrite)
    def run(module: Module) -> Module:
        return rewrite(module, 1)

    return run


ALONE: Mapping[Pass, Pass] = {
    split_convolutions: _alone(split_convolutions),
    split_reductions: _alone(split_reductions),
}
