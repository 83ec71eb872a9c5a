"""Results to hold a run against: the program evaluated as written, one instruction at a time.

HLO does not pin the bits of `rng`, so what depends on them is held against nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hlo2graph.hlo import AnyShape, Kind, Module, Shape
from hlo2graph.ops.evaluate import HostEvaluator
from hlo2graph.ops.spec import Array, HostRule, HostValue

UNPINNED = frozenset({"rng", "rng-get-and-update-state"})
NO_BYTES: Array = np.zeros((), np.uint8)


def host_results(
    module: Module, args: Sequence[Array], rules: Mapping[str, HostRule] = MappingProxyType({})
) -> tuple[Array, ...]:
    """Evaluate the module: no plan, no arena, no order but the text's.

    `args` are the leaves of the parameters, and what comes are the leaves of the result; tokens
    are among neither. `rules` stand in for the op table's, by opcode.
    """
    leaves = iter(args)
    entry = module.entry
    values = [_nested(parameter.shape, leaves) for parameter in entry.parameters]
    result = HostEvaluator(module.computations, rules)(entry.name, values)
    return tuple(_flat(entry.result.shape, result))


def pinned_results(module: Module) -> tuple[bool, ...]:
    """Tell for each leaf of the result whether every run, anywhere, must give the same value."""
    free = _free_computations(module)
    tainted: set[str] = set()
    for instr in module.entry.instructions:
        if (
            instr.opcode in UNPINNED
            or not tainted.isdisjoint(instr.operands)
            or not free.isdisjoint(instr.called())
        ):
            tainted.add(instr.name)
    return tuple(name not in tainted for name in sources_of_result(module))


def sources_of_result(module: Module) -> tuple[str, ...]:
    """Return for each leaf of the result the entry's instruction that it is of."""
    root = module.entry.result
    names = root.operands if root.opcode == "tuple" else (root.name,)
    return tuple(name for name in names for _ in _array_leaves(module.entry[name].shape))


def _free_computations(module: Module) -> set[str]:
    """Return the computations whose results depend on unpinned bits; callees come first."""
    free: set[str] = set()
    for name, computation in module.computations.items():
        if any(
            i.opcode in UNPINNED or not free.isdisjoint(i.called())
            for i in computation.instructions
        ):
            free.add(name)
    return free


def _array_leaves(shape: AnyShape) -> Iterator[Shape]:
    return (leaf for leaf in shape.leaves() if leaf.dtype.kind is not Kind.TOKEN)


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
