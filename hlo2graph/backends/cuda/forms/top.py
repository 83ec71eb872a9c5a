"""The top-k form: the best so far in the lower half of a window, what comes next in the upper.

Each block takes a row. Where k is more than half a window, each thread instead counts how many
elements go before its own.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form, block_index, stored
from hlo2graph.backends.cuda.forms.sort import WIDEST, threads_for, window_size
from hlo2graph.backends.cuda.source import KernelSource, blocks_for
from hlo2graph.ops.device import Expr, Index

POSITION_BYTES = 4
RANK_THREADS = 256


def top_k_kernel(form: Form) -> KernelSource:
    """Return the kernel of a topk: values and where they stand, equals in order."""
    shape, k = form.shape(0), form.results[0].dims[-1]
    emit, rows = form.emitter(), shape.elements // shape.dims[-1] if shape.dims[-1] else 0
    if k > WIDEST // 2:
        return _by_rank(form, emit, k)
    least = window_size(2 * k, shape.dtype.size + POSITION_BYTES)
    window = max(least, min(512, window_size(shape.dims[-1], POSITION_BYTES)))
    threads = threads_for(window)
    _by_windows(form, emit, window, threads)
    return form.source(emit, max(1, rows), threads)


def _by_windows(form: Form, emit: ElementEmitter, window: int, threads: int) -> None:
    shape, k = form.shape(0), form.results[0].dims[-1]
    length, half = shape.dims[-1], window // 2
    emit.line(f"__shared__ hlo::u16 order[{window}];")
    emit.line(f"__shared__ {storage_type(shape.dtype)} values[{window}], kept[{half}];")
    emit.line(f"__shared__ int places[{window}], kept_places[{half}];")
    row = emit.split(emit.integer(block_index(emit)), shape.dims[:-1])
    _comparator(form, emit)
    emit.line("int held = 0;")
    with emit.block(f"for (int first = 0; first < {length}; first += {half})"):
        emit.line(f"const int fresh = first + {half} < {length} ? {half} : {length} - first;")
        with emit.block(f"for (int slot = threadIdx.x; slot < fresh; slot += {threads})"):
            place = emit.integer("first + slot")
            value = emit.leaf(form.instr.operands[0], 0, (*row, place))
            emit.line(f"values[held + slot] = {stored(shape, value)};")
            emit.line(f"places[held + slot] = {place};")
        emit.line("__syncthreads();")
        emit.line(f"hlo::sort_window<{window}, {threads}>(order, held + fresh, before);")
        emit.line(f"held = held + fresh < {half} ? held + fresh : {half};")
        _move(emit, threads, ("kept[slot]", "values[order[slot]]"))
        _move(emit, threads, ("values[slot]", "kept[slot]"))
    with emit.block(f"for (int slot = threadIdx.x; slot < {k}; slot += {threads})"):
        _store(form, emit, (*row, "slot"), "values[slot]", "places[slot]")


def _move(emit: ElementEmitter, threads: int, values: tuple[str, str]) -> None:
    with emit.block(f"for (int slot = threadIdx.x; slot < held; slot += {threads})"):
        emit.line(f"{values[0]} = {values[1]};")
        into, source = (
            v.replace("kept", "kept_places").replace("values", "places") for v in values
        )
        emit.line(f"{into} = {source};")
    emit.line("__syncthreads();")


def _comparator(form: Form, emit: ElementEmitter) -> None:
    with emit.block("const auto before = [&](int a, int b) -> bool", ";"):
        keys = [f"hlo::total_order(hlo::load(values[{slot}]))" for slot in ("a", "b")]
        emit.line(f"return {keys[0]} {_sign(form)} {keys[1]};")


def _sign(form: Form) -> str:
    return ">" if form.instr.attrs.get("largest", True) else "<"


def _store(form: Form, emit: ElementEmitter, index: Index, value: Expr, place: Expr) -> None:
    values, places = form.results
    emit.line(f"r0[{emit.offset(values, index)}] = {value};")
    emit.line(f"r1[{emit.offset(places, index)}] = {place};")


def _by_rank(form: Form, emit: ElementEmitter, k: int) -> KernelSource:
    shape = form.shape(0)
    operand = form.instr.operands[0]
    thread = emit.integer(f"{block_index(emit)} * {RANK_THREADS} + threadIdx.x")
    with emit.block(f"if ({thread} < {shape.elements})"):
        *row, place = emit.split(thread, shape.dims)
        value = emit.leaf(operand, 0, (*row, place))
        emit.line(f"const auto key = hlo::total_order({value});")
        emit.line("int rank = 0;")
        with emit.block(f"for (int other = 0; other < {shape.dims[-1]}; ++other)"):
            rival = emit.leaf(operand, 0, (*row, "other"))
            emit.line(f"const auto rival = hlo::total_order({rival});")
            tie = f"(rival == key && other < {place})"
            emit.line(f"rank += rival {_sign(form)} key || {tie} ? 1 : 0;")
        with emit.block(f"if (rank < {k})"):
            _store(form, emit, (*row, "rank"), stored(shape, value), place)
    (blocks, _, _) = blocks_for(shape.elements, RANK_THREADS)
    return form.source(emit, blocks, RANK_THREADS)
