"""Module in, Program out: flat thunks over values that have no address yet.

Tuples, calls, bitcasts and tokens are gone; a fusion is one kernel, a lone instruction a kernel of
a computation of its own; loops and conditionals hold sequences that use the values around them.
Thunks stand in the order of the text, callees at their calls. What reaches neither a result nor an
effect is left out. An array without elements has a value of size 0, and its thunk stays.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo2graph.hlo import AnyShape, Instruction, Module, Shape
from hlo2graph.hlo.aliases import io_aliases
from hlo2graph.program.lower_calls import study_calls
from hlo2graph.program.lower_dead import without_dead
from hlo2graph.program.lower_kernels import KernelPool
from hlo2graph.program.lower_leaf import Leaf, Leaves, leaf_names
from hlo2graph.program.lower_nested import lower_sequence
from hlo2graph.program.lower_sequence import Builder, Shared
from hlo2graph.program.thunks import (
    Alias,
    Collective,
    Kernel,
    Library,
    Port,
    Program,
    Sequence,
    Value,
)
from hlo2graph.program.uses import nested, reads


def lower(module: Module) -> Program:
    """Lower a verified module.

    Raises:
        UnsupportedError: its calls make it too large, or its loops nest too deeply.
    """
    shared = Shared(
        module,
        study_calls(module),
        KernelPool(module.computations),
        {instr.name for instr in module.entry.instructions},
    )
    builder = Builder(shared)
    arguments = [_parameter(shared, p) for p in module.entry.parameters]
    given = [leaf for leaves in arguments for leaf in leaves if not leaf.is_token]
    leaves = lower_sequence(builder, module.entry, arguments, "")
    results = [leaf for leaf in leaves if not leaf.is_token]
    params = tuple(map(builder.buffer, given))
    body = without_dead(builder.sequence(params, tuple(map(builder.buffer, results))))
    used = {value.id for value in _used(body)}
    return Program(
        name=module.name,
        body=body,
        inputs=tuple(Port(value.origin, value.shape) for value in params),
        outputs=tuple(_outputs(module.entry.result, leaves)),
        constants=tuple(held for held in shared.constants.values() if held[0].id in used),
        computations=shared.pool.gather(_run(body)),
        aliases=tuple(_aliases(module)),
        is_scheduled=module.is_scheduled,
    )


def _parameter(shared: Shared, parameter: Instruction) -> Leaves:
    names = leaf_names(parameter.name, parameter.shape)
    return tuple(
        Leaf(shape) if shape.dtype.name == "token" else Leaf(shape, shared.fresh(shape, name))
        for shape, name in zip(parameter.shape.leaves(), names, strict=True)
    )


def _outputs(root: Instruction, leaves: Leaves) -> Iterator[Port]:
    """Name the results after the operands of the root's tuple, or by their place in the root."""
    names = list(leaf_names(root.name, root.shape))
    if root.opcode == "tuple" and not isinstance(root.shape, Shape):
        named = [
            name
            for operand, part in zip(root.operands, root.shape.parts, strict=True)
            for name in leaf_names(operand, part)
        ]
        names = named if len(set(named)) == len(named) else names
    for name, leaf in zip(names, leaves, strict=True):
        if not leaf.is_token:
            yield Port(name, leaf.shape)


def _aliases(module: Module) -> Iterator[Alias]:
    parameters = {p.payload: p.shape for p in module.entry.parameters}
    starts: dict[int, int] = {}
    first = 0
    for number in range(len(parameters)):
        starts[number] = first
        first += _bytes_leaves(parameters[number])
    for held in io_aliases(module):
        output = _position(module.entry.result.shape, held.output_index)
        inner = _position(parameters[held.parameter], held.parameter_index)
        yield Alias(output, starts[held.parameter] + inner, held.must)


def _position(shape: AnyShape, index: tuple[int, ...]) -> int:
    """Return the place of the leaf at `index` among the leaves with bytes."""
    before = 0
    for step in index:
        assert not isinstance(shape, Shape)
        before += sum(map(_bytes_leaves, shape.parts[:step]))
        shape = shape.parts[step]
    return before


def _bytes_leaves(shape: AnyShape) -> int:
    return sum(leaf.dtype.name != "token" for leaf in shape.leaves())


def _run(sequence: Sequence[Value]) -> Iterator[str]:
    """Yield the computations that the thunks run, nested ones included, in order."""
    for thunk in sequence.thunks:
        if isinstance(thunk, (Kernel, Library, Collective)):
            yield thunk.computation
        for _, inner in nested(thunk):
            yield from _run(inner)


def _used(sequence: Sequence[Value]) -> Iterator[Value]:
    yield from sequence.results
    for thunk in sequence.thunks:
        yield from reads(thunk)
