"""The form of sorts by one key of many short rows: a block takes several rows.

Their keys lie in shared memory. Each element counts those of its row that go before it, and goes to
its place. Neighbouring threads take elements that lie side by side: of a row, or of as many rows.
"""

from __future__ import annotations

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.sorts.window import Window
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.ops.device import Expr
from hlo2graph.ops.sort_key import SortKey

LONGEST = 64  # of a row
_THREADS = 256
_ELEMENTS = 512  # of a block, about


def suits_short_rows(form: Form, along: int) -> bool:
    """Tell whether rows are so short that several share a block."""
    return 1 < form.shape(0).dims[along] <= LONGEST


def short_rows_kernel(form: Form, along: int, key: SortKey) -> KernelSource:
    """Return the kernel that sorts short rows."""
    shape = form.shape(0)
    length = shape.dims[along]
    rows = shape.elements // length
    is_minor = shape.minor_to_major[0] == along
    held = max(1, _ELEMENTS // length)
    held = held if is_minor else max(WARP, held // WARP * WARP)
    writer = Window(form, form.emitter(), along, length, _THREADS)
    emit = writer.emit
    emit.line(f"__shared__ hlo::u32 keys[{held * length}];")
    each = f"for (int e = threadIdx.x; e < {held * length}; e += {_THREADS})"

    def element() -> tuple[Expr, Expr]:
        """Declare which element of which of the block's rows a thread takes."""
        sizes = (held, length) if is_minor else (length, held)
        one, other = emit.split(emit.integer("e"), sizes)
        row, at = (one, other) if is_minor else (other, one)
        emit.line(f"const {writer.index} number = {emit.block_index} * {held} + {row};")
        emit.line(f"if (number >= {rows}) continue;")
        writer.find_row(emit.integer("number"))
        return row, at

    emit.line("#pragma unroll")
    with emit.block(each):
        _, at = element()
        writer.declare_key(key)
        emit.line(f"keys[e] = key({at});")
    emit.line("__syncthreads();")
    emit.line("#pragma unroll")
    with emit.block(each):
        row, at = element()
        source = writer.place(at)
        found = [emit.leaf(name, 0, source) for name in form.instr.operands]
        first, stride = (f"{row} * {length}", 1) if is_minor else (row, held)
        counted = f"hlo::count_in_row<{length}, {stride}>(keys + {first}, {at})"
        place = writer.place(emit.integer(counted))
        for number, (leaf, x) in enumerate(zip(form.results, found, strict=True)):
            value = emit.stored(leaf.dtype, x)
            emit.line(f"r{number}[{emit.offset(leaf, place)}] = {value};")
    return form.source(emit, -(-rows // held), _THREADS)
