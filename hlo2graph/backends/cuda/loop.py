"""The loop form: one thread an element of the result, by the element rules alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from hlo2graph.backends.cuda.ctypes import stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device_shaping import clamped

THREADS = 256


def loop_kernel(
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
    inplace: tuple[tuple[int, int], ...] = (),
) -> KernelSource:
    """Return the kernel that computes each result leaf of `computation` element by element.

    Leaves of the same dimensions share one pass; others follow it, each in a pass of its own. Of a
    dynamic-update-slice in place, the pass is over the update only.
    """
    root = computation.result
    leaves = tuple(root.shape.leaves())
    updates = dict(_updates(computation, inplace))
    passes: dict[tuple[int, ...], list[int]] = {}
    for number, leaf in enumerate(leaves):
        if number not in updates:
            passes.setdefault(leaf.dims, []).append(number)
    counts = [prod(dims) for dims in passes]
    counts += [_update_shape(computation, update).elements for update in updates.values()]
    most = max(counts)
    emitter = ElementEmitter(computations, signature.index_type)
    position = f"{emitter.block_index} * {THREADS} + threadIdx.x"
    emitter.line(f"const {emitter.index_type} thread = {position};")
    for dims, numbers in passes.items():
        count = Shape(leaves[numbers[0]].dtype, dims).elements
        with emitter.block(f"if (thread < {count})"):
            _elements(emitter, computation, leaves, numbers)
    for number, update in updates.items():
        shape = _update_shape(computation, update)
        with emitter.block(f"if (thread < {shape.elements})"):
            _update(emitter, computation, update, number, leaves[number])
    text = signature.declare(emitter.needed_lines(), THREADS)
    return KernelSource(signature.name, text, blocks_for(most, THREADS), THREADS)


def _elements(
    emitter: ElementEmitter, computation: Computation, leaves: tuple[Shape, ...], numbers: list[int]
) -> None:
    """Compute one element of the leaves `numbers`, all of one set of dimensions, and store it."""
    shape = leaves[numbers[0]]
    index = emitter.element_at("thread", shape)
    emitter.enter(computation, None)
    found = [emitter.leaf(computation.root, number, index) for number in numbers]
    emitter.leave()
    for number, value in zip(numbers, found, strict=True):
        leaf = leaves[number]
        place = emitter.offset(leaf, index)
        emitter.line(f"r{number}[{place}] = {stored(leaf.dtype, value)};")


def _updates(
    computation: Computation, inplace: tuple[tuple[int, int], ...]
) -> Iterator[tuple[int, Instruction]]:
    """Yield the result leaves that are dynamic-update-slices of a parameter in the same bytes."""
    root = computation.result
    roots = [computation[name] for name in root.operands] if root.opcode == "tuple" else [root]
    if any(not isinstance(instr.shape, Shape) for instr in roots):
        return
    for number, instr in enumerate(roots):
        if instr.opcode != "dynamic-update-slice":
            continue
        source = computation[instr.operands[0]]
        while source.opcode == "bitcast":
            source = computation[source.operands[0]]
        if source.opcode == "parameter" and (source.payload, number) in inplace:
            yield number, instr


def _update_shape(computation: Computation, update: Instruction) -> Shape:
    shape = computation[update.operands[1]].shape
    assert isinstance(shape, Shape)
    return shape


def _update(
    emitter: ElementEmitter,
    computation: Computation,
    update: Instruction,
    number: int,
    result: Shape,
) -> None:
    """Compute one element of an update and store it where it belongs in the result."""
    shape = _update_shape(computation, update)
    index = emitter.element_at("thread", shape)
    emitter.enter(computation)
    starts = clamped(emitter.operands_of(update), 2, result, shape.dims)
    value = emitter.leaf(update.operands[1], 0, index)
    emitter.leave()
    place = tuple(
        i if start == "0" else emitter.integer(f"{start} + {i}")
        for start, i in zip(starts, index, strict=True)
    )
    at = emitter.offset(result, place)
    emitter.line(f"r{number}[{at}] = {stored(result.dtype, value)};")
