"""The fft form: a block transforms a few lines in shared memory, by one pass for each radix.

Where lines lie side by side in memory, as along a dimension that is not the most minor one,
neighbouring threads take neighbouring lines. Where the operand and the result lie differently, the
last pass leaves its results in shared memory, and threads store them as they lie. Real lines of an
even length are transformed as half as many complex numbers, each of which holds two of them.
"""

from __future__ import annotations

from math import prod

from hlo2graph.backends.cuda.ctypes import compute_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import DTYPES, DType, Shape
from hlo2graph.ops.device import Expr, Index
from hlo2graph.ops.expect import integers, written
from hlo2graph.ops.fft_lines import fits_block, points, radices, turns_of

THREADS = 128  # of a block, at least, where there are lines enough
MOST_THREADS = {8: 1024, 16: 512}  # by the bytes of a number: all have registers enough
RUN_BYTES = 64  # of lines side by side, which a block reads or writes together: twice as many,
WIDE_THREADS, WIDE_WAVES = 512, 2  # where these do, and leave so many blocks a multiprocessor
MOST_BYTES = 150 << 10  # of shared memory, for more than one line
_COMPLEX_OF = {"f32": DTYPES["c64"], "f64": DTYPES["c128"]}
_FORWARDS = ("FFT", "RFFT")


def suits_lines(form: Form) -> bool:
    """Tell whether blocks can transform lines: of one dimension, of a length that has a form."""
    lengths = integers(form.instr, "fft_length")
    some = form.shape(0).elements and written(form.instr).elements
    return len(lengths) == 1 and bool(some) and fits_block(form.instr, form.shape(0).dtype)


def fft_kernel(form: Form) -> KernelSource:
    """Return the kernel of a transform along the last dimension."""
    return _Writer(form).write()


class _Writer:
    def __init__(self, form: Form) -> None:
        self.form, self.instr = form, form.instr
        self.emit: ElementEmitter = form.emitter()
        self.source, self.target = form.shape(0), written(form.instr)
        (self.length,) = integers(form.instr, "fft_length")
        self.dtype: DType = _COMPLEX_OF.get(self.source.dtype.name, self.source.dtype)
        self.type = compute_type(self.dtype)
        self.kind = str(form.instr.attrs["fft_type"])
        self.points = points(form.instr)
        self.radices = radices(self.points) or ()
        self.lanes = self.points // max(self.radices)
        self.pitch = (self.points + self.points // 16) | 1
        self.along = self.source.rank - 1
        self.across_in, self.across_out = (_is_across(s) for s in (self.source, self.target))
        by = self.source if self.across_in or not self.across_out else self.target
        self.order = [d for d in reversed(by.minor_to_major) if d != self.along]
        self.count = prod(self.source.dims[: self.along])
        self.lines = self._lines()

    @property
    def is_half(self) -> bool:
        """A line of real numbers is transformed as pairs of them."""
        return self.points < self.length

    def write(self) -> KernelSource:
        """Return the kernel."""
        emit, threads = self.emit, self.lines * self.lanes
        emit.line(f"{self.type}* const shared = ({self.type}*)hlo::dynamic_shared();")
        self._place(self.across_in, "line", "lane", self.lanes)
        emit.line(f"{self.type}* const mine = shared + line * {self.pitch};")
        sign = -1 if self.kind in _FORWARDS else 1
        held = self.length if self.is_half else self.points
        table = f"hlo::Turns<{self.type}, {held}, {sign}>"
        emit.line(f"auto& turns = *({table}*)(shared + {self.lines * self.pitch});")
        head = f"const auto load = [&](int at) -> {self.type}"
        with emit.block(head, ";"):
            self._load(self._line("line"))
        through = self._goes_through_shared
        if through:
            emit.line(
                f"const auto store = [&](int at, {self.type} x) {{ mine[hlo::spread(at)] = x; }};"
            )
        else:
            self._storer("line")
        numbers = [sign, self.points, self.lanes, threads, *self.radices]
        line = f"hlo::fft_line<{', '.join(map(str, numbers))}>"
        emit.line(f"{line}(turns, mine, lane, load, store);")
        if through:
            emit.line("__syncthreads();")
            self._copy_out(threads)
        blocks = -(-self.count // self.lines)
        source = self.form.source(emit, blocks, threads, wide=True)
        size = (self.lines * self.pitch + turns_of(held)) * self.dtype.size
        return KernelSource(source.name, source.text, source.grid, threads, size)

    @property
    def _goes_through_shared(self) -> bool:
        """Results lie otherwise than operands, or each takes two of a line."""
        return self.across_in != self.across_out or (self.kind == "RFFT" and self.is_half)

    def _lines(self) -> int:
        """Return how many lines a block takes: enough to keep it busy, or to fill a run."""
        fewest, size = max(1, THREADS // self.lanes), self.dtype.size
        if self.across_in or self.across_out:
            fewest = max(fewest, self._run())
        most = min(MOST_THREADS[size] // self.lanes, MOST_BYTES // (self.pitch * size))
        return max(1, min(fewest, most, self.count))

    def _run(self) -> int:
        """Return how many lines side by side a block takes at least."""
        run, device = RUN_BYTES // self.dtype.size, self.form.signature.device
        enough = self.count >= 2 * run * WIDE_WAVES * device.multiprocessors
        return 2 * run if enough and 2 * run * self.lanes <= WIDE_THREADS else run

    # ---- places -----------------------------------------------------------------------------

    def _place(self, across: bool, line: str, lane: str, lanes: int) -> None:
        """Declare this thread's line in the block, and which of its threads it is."""
        parts = (f"% {self.lines}", f"/ {self.lines}") if across else (f"/ {lanes}", f"% {lanes}")
        for name, part in zip((line, lane), parts, strict=True):
            self.emit.line(f"const int {name} = threadIdx.x {part};")

    def _line(self, line: Expr) -> dict[int, Expr]:
        """Return the index of a line, past the end the last one again."""
        emit = self.emit
        number = emit.integer(f"{emit.block_index} * {self.lines} + {line}")
        if self.count % self.lines:
            number = emit.integer(f"{number} < {self.count} ? {number} : {self.count - 1}")
        found = emit.split(number, [self.source.dims[d] for d in self.order])
        return dict(zip(self.order, found, strict=True))

    def _index(self, line: dict[int, Expr], at: Expr) -> Index:
        return (*(line[d] for d in range(self.along)), at)

    # ---- elements ---------------------------------------------------------------------------

    def _operand(self, line: dict[int, Expr], at: Expr) -> Expr:
        place = self._index(line, self.emit.integer(at))
        return self.emit.leaf(self.instr.operands[0], 0, place)

    def _load(self, line: dict[int, Expr]) -> None:
        """Write what returns element `at` of a line to transform."""
        emit = self.emit
        if self.kind == "RFFT" and self.is_half:
            parts = [self._operand(line, f"2 * at + {k}") for k in (0, 1)]
            emit.line(f"return {self.type}{{{', '.join(parts)}}};")
        elif self.kind == "RFFT":
            emit.line(f"return {self.type}{{{self._operand(line, 'at')}, 0}};")
        elif self.kind == "IRFFT" and self.is_half:
            one, other = self._operand(line, "at"), self._operand(line, f"{self.points} - at")
            emit.line(f"{self.type} a = {one}, b = {other};")
            emit.line("if (at == 0) a.im = b.im = 0;")
            emit.line("return hlo::pairs_of(a, b, turns(at));")
        elif self.kind == "IRFFT":
            emit.line(f"const bool mirrored = at > {self.length // 2};")
            place = f"mirrored ? {self.length} - at : at"
            emit.line(f"const {self.type} x = {self._operand(line, place)};")
            emit.line(f"return {self.type}{{x.re, at == 0 ? 0 : mirrored ? -x.im : x.im}};")
        else:
            emit.line(f"return {self._operand(line, 'at')};")

    def _storer(self, line: Expr) -> None:
        """Write `store(at, x0)`, which takes an element of a transformed line."""
        emit = self.emit
        guarded = self.count % self.lines != 0
        with emit.block(f"const auto store = [&](int at, {self.type} x0)", ";"):
            if guarded:
                number = f"{emit.block_index} * {self.lines} + {line}"
                emit.line(f"if ({number} >= {self.count}) return;")
            found = self._line(line)
            if self.kind == "IRFFT" and self.is_half:
                for part, name in enumerate(("re", "im")):
                    self._store(found, f"2 * at + {part}", f"x0.{name}")
            elif self.kind == "IRFFT":
                self._store(found, "at", "x0.re")
            elif self.kind == "RFFT" and not self.is_half:
                with emit.block(f"if (at <= {self.length // 2})"):
                    self._store(found, "at", "x0")
            else:
                self._store(found, "at", "x0")

    def _store(self, line: dict[int, Expr], at: Expr, value: Expr) -> None:
        """Write an element of the transform, and what is made of it, to the results."""
        emit = self.emit
        if self.kind not in _FORWARDS:
            by = f"({compute_type(DTYPES['f32'] if self.dtype.size == 8 else DTYPES['f64'])})1"
            value = f"hlo::scaled({value}, {by} / {self.points})"
        held = emit.bind(self.target.dtype, value)
        index = self._index(line, emit.integer(at))
        emit.assume(self.instr.name, index, (held,))
        for number, leaf in enumerate(self.form.results):
            made = emit.leaf(self.form.computation.root, number, index)
            place = emit.offset(leaf, index)
            emit.line(f"r{number}[{place}] = {emit.stored(leaf.dtype, made)};")

    def _copy_out(self, threads: int) -> None:
        """Store what the last pass has left in shared memory, as the result lies."""
        emit, size = self.emit, self.target.dims[-1]
        is_half = self.kind == "RFFT" and self.is_half
        steps = self.points if self.kind == "IRFFT" else size
        head = f"for (int each = threadIdx.x; each < {self.lines * steps}; each += {threads})"
        self_line = f"each % {self.lines}" if self.across_out else f"each / {steps}"
        at = f"each / {self.lines}" if self.across_out else f"each % {steps}"
        with emit.block(head):
            emit.line(f"const int out = {self_line}, step = {at};")
            self._storer("out")
            emit.line(f"{self.type}* const from = shared + out * {self.pitch};")
            if is_half:
                low, high = (f"from[hlo::spread({k} % {self.points})]" for k in ("step", "other"))
                emit.line(f"const int other = {self.points} - step;")
                emit.line(f"store(step, hlo::reals_of({low}, {high}, turns(step)));")
            else:
                emit.line("store(step, from[hlo::spread(step)]);")


def _is_across(shape: Shape) -> bool:
    """Tell whether neighbours in memory are of different lines."""
    minor = next((d for d in shape.minor_to_major if shape.dims[d] > 1), shape.rank - 1)
    return minor != shape.rank - 1
