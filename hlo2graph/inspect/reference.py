"""Results to hold a run against: the program evaluated as written, one instruction at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hlo2graph.hlo import AnyShape, Kind, Module, Shape
from hlo2graph.ops.evaluate import HostEvaluator
from hlo2graph.ops.spec import Array, HostValue

NO_BYTES: Array = np.zeros((), np.uint8)


def host_results(module: Module, args: Sequence[Array]) -> tuple[Array, ...]:
    """Evaluate the module: no plan, no arena, no order but the text's.

    `args` are the leaves of the parameters, and what comes are the leaves of the result; tokens
    are among neither.
    """
    leaves = iter(args)
    entry = module.entry
    values = [_nested(parameter.shape, leaves) for parameter in entry.parameters]
    result = HostEvaluator(module.computations)(entry.name, values)
    return tuple(_flat(entry.result.shape, result))


def _nested(shape: AnyShape, leaves: Iterator[Array]) -> HostValue:
    if isinstance(shape, Shape):
        return NO_BYTES if shape.dtype.kind is Kind.TOKEN else next(leaves)
    return tuple(_nested(part, leaves) for part in shape.parts)


def _flat(shape: AnyShape, value: HostValue) -> Iterator[Array]:
    if isinstance(shape, Shape):
        assert not isinstance(value, tuple)
        if shape.dtype.kind is not Kind.TOKEN:
            yield value
        return
    assert isinstance(value, tuple)
    for part, held in zip(shape.parts, value, strict=True):
        yield from _flat(part, held)
