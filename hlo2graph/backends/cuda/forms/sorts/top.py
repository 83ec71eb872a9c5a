"""The top-k form: a block takes a row.

For a very small k the block looks k times for the best of what is left, in registers. For a k up to
MOST_KEPT it finds a bound that little but the best reaches, from the best of groups of elements, or
the last element that belongs to the best, bit by bit of its key, and puts those before it in order;
the keys stay in registers where a row is no longer than these. All are in include/top.cuh. For a
larger k each thread counts how many elements go before its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.backends.cuda.ctypes import stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource, blocks_for
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.top_places import takes_largest

FEW, KEY_BITS = 4, 32
MOST_KEPT = 1024
RANK_THREADS = 256
MOST_THREADS = 512
EACH, MOST_EACH = 4, 16  # elements of a thread: as far as there are threads, and in registers
FEW_EACH = 2  # the first where each row has a multiprocessor to itself


def top_k_kernel(form: Form) -> KernelSource:
    """Return the kernel of a topk: values and where they stand, equals in order."""
    shape, k = form.shape(0), form.results[0].dims[-1]
    emit = form.emitter()
    if k > MOST_KEPT:
        return _by_rank(form, emit, k)
    length = shape.dims[-1]
    rows = shape.elements // length if length else 0
    least = FEW_EACH if rows <= form.signature.device.multiprocessors else EACH
    threads = min(MOST_THREADS, WARP << max(0, -(-length // (least * WARP)) - 1).bit_length())
    each = -(-length // threads)
    row = emit.split(emit.integer(emit.block_index), shape.dims[:-1])
    with emit.block(f"const auto key = [&]({emit.index_type} at)", ";"):
        value = emit.leaf(form.instr.operands[0], 0, (*row, "at"))
        turn = "" if takes_largest(form.instr) else "~"
        emit.line(f"return {turn}hlo::order_key({value});")
    with emit.block(f"const auto put = [&](int rank, {emit.index_type} at)", ";"):
        value = emit.leaf(form.instr.operands[0], 0, (*row, "at"))
        _store(
            form, emit, (*row, "rank"), stored(shape.dtype, value), _place(form, emit, row, "at")
        )
    if k <= FEW and each <= MOST_EACH and shape.dtype.bits <= KEY_BITS:
        emit.line(f"hlo::take_few<{threads}, {each}, {k}>({length}, key, put);")
    else:
        numbers = f"{threads}, {each if each <= MOST_EACH else 0}, {k}, {emit.index_type}"
        emit.line(f"hlo::take_largest<{numbers}>({length}, key, put);")
    return form.source(emit, shape.elements // length, threads)


def _sign(form: Form) -> str:
    return ">" if takes_largest(form.instr) else "<"


def _place(form: Form, emit: ElementEmitter, row: Sequence[Expr], at: Expr) -> Expr:
    """Return where an element stood: what a second operand says, or where it stands."""
    if len(form.instr.operands) == 1:
        return at
    return emit.leaf(form.instr.operands[1], 0, (*row, at))


def _store(form: Form, emit: ElementEmitter, index: Index, value: Expr, place: Expr) -> None:
    values, places = form.results
    emit.line(f"r0[{emit.offset(values, index)}] = {value};")
    emit.line(f"r1[{emit.offset(places, index)}] = {place};")


def _by_rank(form: Form, emit: ElementEmitter, k: int) -> KernelSource:
    shape = form.shape(0)
    operand = form.instr.operands[0]
    thread = emit.integer(f"{emit.block_index} * {RANK_THREADS} + threadIdx.x")
    with emit.block(f"if ({thread} < {shape.elements})"):
        *row, place = emit.split(thread, shape.dims)
        value = emit.leaf(operand, 0, (*row, place))
        emit.line(f"const auto key = hlo::total_order({value});")
        emit.line("int rank = 0;")
        with emit.block(f"for ({emit.index_type} other = 0; other < {shape.dims[-1]}; ++other)"):
            rival = emit.leaf(operand, 0, (*row, "other"))
            emit.line(f"const auto rival = hlo::total_order({rival});")
            tie = f"(rival == key && other < {place})"
            emit.line(f"rank += rival {_sign(form)} key || {tie} ? 1 : 0;")
        with emit.block(f"if (rank < {k})"):
            stood = _place(form, emit, row, place)
            _store(form, emit, (*row, "rank"), stored(shape.dtype, value), stood)
    (blocks, _, _) = blocks_for(shape.elements, RANK_THREADS)
    return form.source(emit, blocks, RANK_THREADS)
