"""The loop form: each thread computes an element of the result by the element rules alone.

In large arrays it computes several, see widen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from math import prod
from typing import TypeAlias

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.transposes.grain import across_of
from hlo2graph.backends.cuda.forms.transposes.local_turn import local_turn_kernel, local_turn_of
from hlo2graph.backends.cuda.forms.transposes.transpose import turned_kernel
from hlo2graph.backends.cuda.forms.windows import RULES, patch_of, strip_of
from hlo2graph.backends.cuda.lanes import Lanes
from hlo2graph.backends.cuda.lift_reads import lifted
from hlo2graph.backends.cuda.repeats import TIMES, Repeats, repeats_of
from hlo2graph.backends.cuda.row_words import RowWords
from hlo2graph.backends.cuda.source import KernelSource, Signature, blocks_for
from hlo2graph.backends.cuda.widen import THREADS, Wide, lanes_for, widened
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device import Index
from hlo2graph.ops.device_shaping import clamped

_Write: TypeAlias = Callable[[Index], None]
_Patch: TypeAlias = tuple[int, int]


def loop_kernel(
    computation: Computation,
    computations: Mapping[str, Computation],
    signature: Signature,
    inplace: tuple[tuple[int, int], ...] = (),
) -> KernelSource:
    """Return the kernel that computes each result leaf of `computation` element by element.

    Leaves of the same dimensions share one pass; others follow it, each in a pass of its own. Of a
    dynamic-update-slice in place, the pass is over the update only. What is read across the grain
    goes through tiles. Of windows, threads compute patches.
    """
    leaves = signature.results
    updates = dict(_updates(computation, inplace))
    many = leaves[0].elements >= signature.device.multiprocessors * THREADS
    if many and not updates and (local := local_turn_of(computation, signature)):
        return local_turn_kernel(local, signature)
    if many and not updates and (across := across_of(computation, leaves)):
        turned = turned_kernel(across, computation, computations, signature)
        if turned is not None:
            return turned
    passes: dict[tuple[int, ...], list[int]] = {}
    for number, leaf in enumerate(leaves):
        if number not in updates:
            passes.setdefault(leaf.dims, []).append(number)
    patch = (1, 1)
    if many:
        patch = patch_of(computation, leaves[0])
        patch = patch if patch > (1, 1) else strip_of(computation, leaves[0])
    rules = RULES if patch > (1, 1) else None
    emitter = ElementEmitter(computations, signature.index_type, rules)
    writer = _Passes(emitter, signature, may_repeat=not inplace, apart=not many)
    for numbers in passes.values():
        write = partial(_elements, emitter, computation, leaves, numbers)
        with writer.next_pass():
            writer.write([leaves[number] for number in numbers], write, patch)
        patch = 1, 1
    for number, update in updates.items():
        write = partial(_update, emitter, computation, update, number, leaves[number])
        with writer.next_pass():
            writer.write([_update_shape(computation, update)], write)
    text = signature.declare(emitter.needed_lines(), THREADS, wide=writer.wide)
    return KernelSource(signature.name, text, (writer.blocks, 1, 1), THREADS, is_bare=True)


class _Passes:
    """Writes passes over elements: each thread takes one, or several that lie side by side.

    Passes `apart` have blocks of their own: none waits for what another one reads.
    """

    def __init__(
        self, emitter: ElementEmitter, signature: Signature, *, may_repeat: bool, apart: bool
    ) -> None:
        self._emitter, self._signature, self._may_repeat = emitter, signature, may_repeat
        self._apart = apart
        self.blocks = 0  # that the passes need
        self.threads = 0  # that the pass at hand needs
        self.wide = False

    @contextmanager
    def next_pass(self) -> Iterator[None]:
        """Let what the context writes be a pass."""
        emit, first = self._emitter, self.blocks if self._apart else 0
        emit.first_block, self.threads = first, 0
        with emit.block(f"if (blockIdx.x >= {first})") if first else nullcontext():
            if first or not self.blocks:
                place = f"{emit.block_index} * {THREADS} + threadIdx.x"
                emit.line(f"const {emit.index_type} thread = {place};")
            yield
        self.blocks = max(self.blocks, first + blocks_for(self.threads, THREADS)[0])

    def write(self, results: Sequence[Shape], element: _Write, patch: _Patch = (1, 1)) -> None:
        """Write a pass over arrays of the same dimensions; `element` writes that of an index.

        Elements that do not fill all lanes of a thread, or a block, have threads of their own.
        A patch of so many rows and columns has one, where it is of more than one element.
        """
        emit, count = self._emitter, results[0].elements
        if patch > (1, 1):
            self._write_patches(results[0], element, patch)
            return
        found = self._widened(results, element) if lanes_for(self._signature, results) > 1 else None
        if found is None:
            self.threads = max(self.threads, count)
            with emit.block(f"if (thread < {count})"):
                element(emit.element_at("thread", results[0]))
            return
        if found.row:
            rows = RowWords(emit, results[0], element, found)
            rows.write()
            self.threads, self.wide = max(self.threads, rows.threads), True
            return
        repeats = repeats_of(found.lines, found.lanes, count) if found.step == 1 else None
        if repeats is not None:
            self._write_repeats(results[0], element, found.lanes, repeats)
            return
        lanes, step = found.lanes, found.step
        whole = count // (lanes * step) * step
        needed = count - whole * (lanes - 1)
        self.threads, self.wide = max(self.threads, needed), True
        with emit.block(f"if (thread < {whole})"):
            place = f"thread * {lanes}"
            if step > 1:
                place = f"{emit.block_index} * {lanes * step} + threadIdx.x"
            emit.line(f"const {emit.index_type} first = {place};")
            emit.lines += found.lines
        if needed > whole:
            with emit.block(f"else if (thread < {needed})"):
                emit.line(f"const {emit.index_type} last = thread + {whole * (lanes - 1)};")
                element(emit.element_at("last", results[0]))

    def _write_repeats(self, shape: Shape, element: _Write, lanes: int, repeats: Repeats) -> None:
        """Write a pass in which a thread stores its lanes' elements wherever they come again."""
        emit, period = self._emitter, repeats.period
        whole, rest = divmod(shape.elements, lanes)
        threads = -(-whole // (period * TIMES)) * period
        self.threads, self.wide = max(self.threads, threads + rest), True
        with emit.block(f"if (thread < {threads})"):
            word = f"thread / {period} * {period * TIMES} + thread % {period}"
            emit.line(f"const {emit.index_type} first = ({word}) * {lanes};")
            emit.lines += repeats.made
            head = f"for ({emit.index_type} to = first, times = 0; "
            last = f"times < {TIMES} && to <= {shape.elements - lanes}"
            emit.line("#pragma unroll")
            with emit.block(f"{head}{last}; ++times, to += {period * lanes})"):
                emit.lines += [f"  {line}" for line in repeats.stored]
        if rest:
            with emit.block(f"else if (thread < {threads + rest})"):
                last = emit.integer(f"thread - {threads} + {whole * lanes}")
                element(emit.element_at(last, shape))

    def _write_patches(self, shape: Shape, element: _Write, patch: _Patch) -> None:
        """Write a pass in which a thread computes a patch."""
        emit, (height, width) = self._emitter, patch
        dims = (*shape.dims[:-2], shape.dims[-2] // height, shape.dims[-1] // width)
        self.threads, self.wide = max(self.threads, prod(dims)), width > 1
        with emit.block(f"if (thread < {prod(dims)})"):
            *outer, group, side = emit.split("thread", dims)
            row = emit.integer(f"{group} * {height}")
            column = emit.integer(f"{side} * {width}") if width > 1 else side
            mark = len(emit.lines)
            element((*outer, row, column))
            body = emit.places.needed(emit.lines[mark:])
            body = Lanes(body, row, height, whole=group).lines
            if width > 1:  # last, so that what lies side by side stands so
                body = Lanes(body, column, width, whole=side, mark="_c").lines
            emit.lines[mark:] = body

    def _widened(self, results: Sequence[Shape], element: _Write) -> Wide | None:
        emit, mark = self._emitter, len(self._emitter.lines)
        with emit.block("if (true)"):  # for its scope: what is known in it is forgotten
            element(emit.element_at("first", results[0]))
        body = emit.places.needed(emit.lines[mark + 1 : -1])
        del emit.lines[mark:]
        body = lifted(body, "first")
        return widened(body, "first", self._signature, results, may_repeat=self._may_repeat)


def _elements(
    emitter: ElementEmitter,
    computation: Computation,
    leaves: tuple[Shape, ...],
    numbers: list[int],
    index: Index,
) -> None:
    """Compute one element of the leaves `numbers`, all of one set of dimensions, and store it."""
    emitter.enter(computation)
    found = [emitter.leaf(computation.root, number, index) for number in numbers]
    emitter.leave()
    held = [emitter.stored(leaves[n].dtype, value) for n, value in zip(numbers, found, strict=True)]
    for number, value in zip(numbers, held, strict=True):
        emitter.line(f"r{number}[{emitter.offset(leaves[number], index)}] = {value};")


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
    index: Index,
) -> None:
    """Compute one element of an update and store it where it belongs in the result."""
    shape = _update_shape(computation, update)
    emitter.enter(computation)
    starts = clamped(emitter.operands_of(update), 2, result, shape.dims)
    value = emitter.leaf(update.operands[1], 0, index)
    emitter.leave()
    place = tuple(
        i if start == "0" else emitter.integer(f"{start} + {i}")
        for start, i in zip(starts, index, strict=True)
    )
    held = emitter.stored(result.dtype, value)
    emitter.line(f"r{number}[{emitter.offset(result, place)}] = {held};")
