"""The loop form: one thread an element of the result, by the element rules alone."""

from __future__ import annotations

from collections.abc import Mapping

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.hlo import Computation, Shape

THREADS = 256


def loop_kernel(
    computation: Computation, computations: Mapping[str, Computation], signature: Signature
) -> KernelSource:
    """Return the kernel that computes each result leaf of `computation` element by element.

    Leaves of the same dimensions share one pass; others follow it, each in a pass of its own.
    """
    root = computation.result
    leaves = tuple(root.shape.leaves())
    passes: dict[tuple[int, ...], list[int]] = {}
    for number, leaf in enumerate(leaves):
        passes.setdefault(leaf.dims, []).append(number)
    most = max(leaf.elements for leaf in leaves)
    emitter = ElementEmitter(computations, signature.index_type)
    wide = "" if emitter.index_type == "int" else f"({emitter.index_type})"
    position = f"{wide}blockIdx.x * {THREADS} + threadIdx.x"
    emitter.line(f"const {emitter.index_type} thread = {position};")
    for dims, numbers in passes.items():
        count = Shape(leaves[numbers[0]].dtype, dims).elements
        with emitter.block(f"if (thread < {count})"):
            _elements(emitter, computation, leaves, numbers)
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
        emitter.line(f"r{number}[{place}] = hlo::Store<{storage_type(leaf.dtype)}>::of({value});")
