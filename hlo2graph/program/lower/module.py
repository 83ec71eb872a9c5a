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
from hlo2graph.program.lower.calls import study_calls
from hlo2graph.program.lower.kernels import KernelPool
from hlo2graph.program.lower.leaf import Leaf, Leaves, leaf_names
from hlo2graph.program.lower.nested import lower_sequence
from hlo2graph.program.lower.sequence import Builder, Shared
from hlo2graph.program.thunks import Alias, Port, Program
from hlo2graph.program.uses import computing, reads_of


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
    body = builder.sequence(params, tuple(map(builder.buffer, results)))
    used = {value.id for value in reads_of(body)}
    return Program(
        name=module.name,
        body=body,
        inputs=tuple(Port(value.origin, value.shape) for value in params),
        outputs=tuple(_outputs(module.entry.result, leaves)),
        constants=tuple(held for held in shared.constants.values() if held[0].id in used),
        computations=shared.pool.gather(thunk.computation for thunk in computing(body)),
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
    """Say for each alias which result leaf and which parameter leaf it ties; tokens have none."""
    inputs: dict[tuple[int, ...], int] = {}
    for number, parameter in enumerate(module.entry.parameters):
        for index in _places(parameter.shape):
            inputs[(number, *index)] = len(inputs)
    outputs = {index: place for place, index in enumerate(_places(module.entry.result.shape))}
    for held in io_aliases(module):
        inner = inputs.get((held.parameter, *held.parameter_index))
        outer = outputs.get(held.output_index)
        if inner is not None and outer is not None:
            yield Alias(outer, inner, held.must)


def _places(shape: AnyShape, index: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the index of each leaf that has bytes."""
    if not isinstance(shape, Shape):
        for i, part in enumerate(shape.parts):
            yield from _places(part, (*index, i))
    elif shape.dtype.name != "token":
        yield index
