"""A kernel's gradient on tensor cores: a block has all taps of a row of the kernel.

Its sum runs over rows of images. A team holds some of them in shared memory, with what lies beside
them for the outermost taps, step by step; each warp multiplies them moved by its own tap. So what
is read for one tap serves all of the row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.convolution_product import ConvolutionProduct
from hlo2graph.backends.cuda.forms.products.partners import MOST_BLOCKS
from hlo2graph.backends.cuda.forms.products.product import Side
from hlo2graph.backends.cuda.forms.products.staged import STEPS, StagedWriter
from hlo2graph.backends.cuda.forms.products.staged_operand import Operand
from hlo2graph.backends.cuda.forms.products.staged_reader import Reader, Step
from hlo2graph.backends.cuda.forms.products.staged_tile import BUSY, SPAN
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.device_folds import window_dims
from hlo2graph.ops.expect import integer
from hlo2graph.ops.kernel_gradient import TapRows

PLACES = 64  # of a chunk, at most, and about as many where rows are shorter


def gradient_kernel(form: Form, cut: TapRows) -> KernelSource | None:
    """Return the kernel, if what it reads lies in memory as it will in shared memory."""
    writer = _Writer(form, _fine(form, cut))
    found = writer.kernel()
    return found if all(r.is_plain and r.is_sum for r in writer.readers) else None


def _fine(form: Form, cut: TapRows) -> TapRows:
    """Return smaller parts of features, where too few multiprocessors would have any."""
    device = form.signature.device
    groups = integer(form.instr, "feature_group_count", 1)
    wanted = device.multiprocessors * BUSY / (groups * min(device.cluster, MOST_BLOCKS))
    if cut.tiles < wanted:
        cut = replace(cut, outputs=SPAN)
    return replace(cut, inputs=SPAN) if cut.tiles < wanted else cut


class _Product(ConvolutionProduct):
    """The product with its rows ordered by blocks: rows of taps, parts of features, taps."""

    def __init__(self, form: Form, cut: TapRows) -> None:
        super().__init__(form, clamps=False)
        self._cut = cut
        parts = cut.features[0] // cut.inputs
        rows = Side(0, (cut.rows, parts, cut.taps, cut.inputs), is_deep=False)
        self.sides = (rows, self.sides[1])

    def result(self, batch: Index, lhs: Index, rhs: Index) -> Index:
        """Return the index of a tap and features."""
        row, part, tap, feature = lhs
        if self._cut.features[0] > self._cut.inputs:
            feature = f"({part} * {self._cut.inputs} + {feature})"
        return super().result(batch, (row, tap, feature), rhs)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Of rows of `width` places: `count` at once, or one in `parts`, filled up to `filled`."""

    width: int
    count: int
    parts: int
    filled: int

    @staticmethod
    def of(width: int, least: int) -> _Chunk:
        """Return about PLACES of rows; a product takes `least`."""
        parts = -(-width // PLACES)
        filled = -(-width // (parts * least)) * least
        return _Chunk(width, max(1, PLACES // filled) if parts == 1 else 1, parts, filled)


@dataclass(slots=True, kw_only=True)
class _Reader(Reader):
    """Reads rows with `beside` places more than a chunk has."""

    chunk: _Chunk
    beside: int
    row: Expr = ""  # of taps

    def _steps_of(self, chunk: Expr, word: Expr, count: int) -> list[Step]:
        """Return a place of a row, tested where it may be past the row's last."""
        del count
        emit, held, (images, height, _) = self.emit, self.chunk, self.product.steps
        reach = held.filled + self.beside
        place, number = emit.integer(word), chunk
        if held.parts > 1:
            number = emit.integer(f"{chunk} / {held.parts}")
            place = emit.integer(f"{chunk} % {held.parts} * {held.filled} + {place}")
        elif held.count > 1:
            number = emit.integer(f"{chunk} * {held.count} + {place} / {reach}")
            place = emit.integer(f"{place} % {reach}")
        tests = [f"{place} < {held.width + self.beside}"]
        rows = images * height
        if rows * held.parts % self.at_once:
            tests.append(f"{number} < {rows}")
        return [((*emit.split(number, (images, height)), place), tests)]

    def _whole(self, index: Index) -> Index:
        return (self.row, "0", *index) if self.row else index


class _Writer(StagedWriter):
    """Its operands are held step by step, those of the lhs once for all taps of a row."""

    def __init__(self, form: Form, cut: TapRows) -> None:
        self.cut = cut
        per = 4 // form.shape(0).dtype.size
        self.chunk = _Chunk.of(window_dims(form.instr)[1].size, STEPS * per)
        super().__init__(form, _Product(form, cut), stages=2)

    def _tiled(self) -> tuple[Side, Side]:
        rows, columns = self.product.sides
        return rows.cut(self.cut.taps * self.cut.inputs), columns.cut(self.cut.outputs)

    def _span(self) -> int:
        return self.cut.inputs

    def _operands(self, per: int) -> tuple[Operand, Operand]:
        count, filled = self.chunk.count, self.chunk.filled
        read = Side(0, (self.cut.features[0],), is_deep=False, tile=self.cut.inputs)
        beside = self.cut.taps - 1
        return (
            Operand(read, "a", per, self.team, count * (filled + beside)),
            Operand(self.columns, "b", per, self.team, count * filled),
        )

    def _count_chunks(self) -> int:
        images, height, _ = self.product.steps
        return -(-images * height * self.chunk.parts // self.chunk.count)

    def _readers(self) -> tuple[Reader, Reader]:
        at_once = self.chunk.count * self.partners.all
        a, b = (
            _Reader(
                self.form,
                self.emit,
                self.product,
                operand,
                at_once,
                copies=True,
                chunk=self.chunk,
                beside=beside,
            )
            for operand, beside in zip(self.sides, (self.cut.taps - 1, 0), strict=True)
        )
        return a, b

    def _place_readers(self) -> None:
        """Place both: of the lhs, the row of taps and the part of features are the block's."""
        emit, cut, (a, b) = self.emit, self.cut, self.readers
        parts = cut.features[0] // cut.inputs
        number = emit.integer(f"{self.starts[0]} / {self.rows.tile}")
        row, part = emit.split(number, (cut.rows, parts))
        assert isinstance(a, _Reader)
        a.row = row
        a.place(self.batch, emit.integer(f"{part} * {cut.inputs}"))
        b.place(self.batch, self.starts[1])
        emit.line(f"const int tap = span_a / {self.span};")

    def _chunk_at(self, number: Expr) -> Expr:
        return self.emit.integer(number)

    def _begins(self) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
        steps, held = STEPS * self.sides[1].per, self.chunk
        first = second = f"{steps} * s"
        if held.count > 1:
            each, reach = held.filled // steps, held.filled + self.cut.taps - 1
            first = f"s / {each} * {reach} + s % {each} * {steps}"
        return ("0", f"{first} + tap"), ("span_b", second)
