"""The top-k form: a block takes a row.

For a small k the block looks k times for the best element behind the one found last. For a larger
one the best so far are in the lower half of a window and what comes next in the upper. Where k is
more than half a window, each thread counts how many elements go before its own.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.ctypes import compute_type, storage_type, stored
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sort import threads_for
from hlo2graph.backends.cuda.source import KernelSource, blocks_for
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.sort_runs import window_size

POSITION_BYTES = 4
RANK_THREADS = 256
WIDEST = 2048  # elements of a window, beside which there are the best so far
FEW = 16  # best elements that are looked for one by one
WARP = 32


def top_k_kernel(form: Form) -> KernelSource:
    """Return the kernel of a topk: values and where they stand, equals in order."""
    shape, k = form.shape(0), form.results[0].dims[-1]
    emit, rows = form.emitter(), shape.elements // shape.dims[-1] if shape.dims[-1] else 0
    if 0 < k <= FEW:
        threads = min(RANK_THREADS, WARP * max(1, -(-shape.dims[-1] // (2 * WARP))))
        _by_rounds(form, emit, k, threads)
        return form.source(emit, max(1, rows), threads)
    if k > WIDEST // 2:
        return _by_rank(form, emit, k)
    least = min(WIDEST, window_size(2 * k, shape.dtype.size + POSITION_BYTES))
    window = max(least, min(WIDEST, window_size(shape.dims[-1], POSITION_BYTES)))
    threads = threads_for(window)
    _by_windows(form, emit, window, threads)
    return form.source(emit, max(1, rows), threads)


def _by_rounds(form: Form, emit: ElementEmitter, k: int, threads: int) -> None:
    shape, operand, sign = form.shape(0), form.instr.operands[0], _sign(form)
    row = emit.split(emit.integer(emit.block_index), shape.dims[:-1])
    kind = f"decltype(hlo::total_order({compute_type(shape.dtype)}{{}}))"
    warps = threads // WARP
    index = emit.index_type
    emit.line(f"typedef {kind} Key;")
    emit.line(f"__shared__ Key keys[{warps}];")
    emit.line(f"__shared__ {index} places[{warps}];")
    emit.line("Key last = {};")
    emit.line(f"{index} last_place = -1;")
    head = f"const auto before = [](Key a, {index} p, Key b, {index} q) -> bool"
    with emit.block(head, ";"):
        emit.line(f"return q < 0 || a {sign} b || (a == b && p < q);")
    with emit.block(f"for (int round = 0; round < {k}; ++round)"):
        emit.line("Key key = {};")
        emit.line(f"{index} place = -1;")
        head = f"for ({index} at = threadIdx.x; at < {shape.dims[-1]}; at += {threads})"
        with emit.block(head):
            value = emit.leaf(operand, 0, (*row, "at"))
            emit.line(f"const Key found = hlo::total_order({value});")
            behind = "(last_place < 0 || before(last, last_place, found, at)) && at != last_place"
            emit.line(f"const bool is_better = {behind} && before(found, at, key, place);")
            emit.line("if (is_better) key = found, place = at;")
        with emit.block(f"for (int delta = {WARP // 2}; delta; delta /= 2)"):
            emit.line("const Key other = hlo::shuffle_down(key, delta);")
            emit.line(f"const {index} other_place = hlo::shuffle_down(place, delta);")
            wins = "other_place >= 0 && before(other, other_place, key, place)"
            emit.line(f"if ({wins}) key = other, place = other_place;")
        emit.line(f"const int warp = threadIdx.x / {WARP};")
        emit.line(f"if (threadIdx.x % {WARP} == 0) keys[warp] = key, places[warp] = place;")
        emit.line("__syncthreads();")
        emit.line("key = keys[0], place = places[0];")
        with emit.block(f"for (int w = 1; w < {warps}; ++w)"):
            wins = "places[w] >= 0 && before(keys[w], places[w], key, place)"
            emit.line(f"if ({wins}) key = keys[w], place = places[w];")
        emit.line("__syncthreads();")
        emit.line("last = key, last_place = place;")
        with emit.block("if (threadIdx.x == 0)"):
            value = emit.leaf(operand, 0, (*row, "place"))
            _store(form, emit, (*row, "round"), stored(shape.dtype, value), "place")


def _by_windows(form: Form, emit: ElementEmitter, window: int, threads: int) -> None:
    shape, k = form.shape(0), form.results[0].dims[-1]
    length, half = shape.dims[-1], window // 2
    emit.line(f"__shared__ hlo::u16 order[{window}], spare[{window}];")
    emit.line(f"__shared__ {storage_type(shape.dtype)} values[{window}], kept[{half}];")
    emit.line(f"__shared__ int places[{window}], kept_places[{half}];")
    row = emit.split(emit.integer(emit.block_index), shape.dims[:-1])
    _comparator(form, emit)
    emit.line("int held = 0;")
    with emit.block(f"for ({emit.index_type} first = 0; first < {length}; first += {half})"):
        emit.line(f"const int fresh = first + {half} < {length} ? {half} : {length} - first;")
        with emit.block(f"for (int slot = threadIdx.x; slot < fresh; slot += {threads})"):
            place = emit.integer("first + slot")
            value = emit.leaf(form.instr.operands[0], 0, (*row, place))
            emit.line(f"values[held + slot] = {stored(shape.dtype, value)};")
            emit.line(f"places[held + slot] = {place};")
        emit.line("__syncthreads();")
        emit.line(
            f"hlo::merge_sort_window<{window}, {threads}>(order, spare, held + fresh, before);"
        )
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
            _store(form, emit, (*row, "rank"), stored(shape.dtype, value), place)
    (blocks, _, _) = blocks_for(shape.elements, RANK_THREADS)
    return form.source(emit, blocks, RANK_THREADS)
