"""The form of a transposition of narrow elements in pieces that a block holds.

A block reads a piece of the argument as it lies, by whole accesses, into shared memory. In the
result the piece is runs of neighbours, which the block writes by whole accesses too: so it matters
to no access of memory how long rows are, or where in a word they begin.

Where the first dimensions stay first, what lies between two of their indices is one stretch of the
argument, and one of the result. A piece is some stretches where they are short. Else, of rows that
stay rows, it is some indices of the dimension that is the most major of a stretch: small pieces let
many blocks share a multiprocessor, of which some read while others write. It is a whole stretch
where runs would get too short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.transposes.grain import FEWEST
from hlo2graph.backends.cuda.source import ACCESS_BYTES, KernelSource, Signature
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device import Expr

WORDS = (16, 8, 4)  # bytes that a thread writes at once
UNITS = (8, 4, 2, 1)  # bytes that it moves at once
WORD = 8  # bytes: what they divide is turned as well through tiles
LARGEST = 2  # bytes of an element that is turned: of wider ones rows are wide enough by themselves
LONGEST_ROW = 256  # bytes of rows that are moved whole
SPARE_BYTES = 2 << 10  # of a block, for the accesses around its piece, and for the system
FEWEST_BLOCKS = 2  # that share a multiprocessor, so that one writes while another reads
SYSTEM_BYTES = 1 << 10  # of shared memory, in each block
THREADS = 256, 512, 1024  # of a block: as few as fill a multiprocessor
PIECE_BYTES = 16 << 10, 32 << 10, 64 << 10  # of a piece that is no whole stretch
RUN_BYTES = 512  # of its runs, at least
MOST_WAYS = 3  # threads of a warp that meet in a bank, for each byte of a unit
ACCESS_COST = 4  # of an access, in the time that a warp's access to shared memory takes
WARPS = 8  # that are looked at for that
ROUNDS = 8  # accesses of a thread under way at once, at most


@dataclass(frozen=True, slots=True)
class LocalTurn:
    """A result with the dimensions `before`, `count` and `behind`, `batches` times.

    Its elements are of `unit` bytes: whole words of rows that stay rows. A piece has `held` indices
    of `count`, and all of the others; in the argument its elements are neighbours, of which `steps`
    are the distances along before, count and behind. A thread writes `vector` elements at once.
    """

    parameter: int
    unit: int
    batches: int
    before: tuple[int, ...]
    count: int
    behind: tuple[int, ...]
    steps: tuple[int, ...]
    held: int
    vector: int = 1

    @property
    def pieces(self) -> int:
        """Pieces of a batch, of which the last may be smaller."""
        return -(-self.count // self.held)

    @property
    def runs(self) -> int:
        """Runs of a piece in the result."""
        return prod(self.before)

    @property
    def inner(self) -> int:
        """Elements of a run for each index that a piece holds."""
        return prod(self.behind)

    @property
    def outer(self) -> int:
        """Elements of a piece for each index that it holds."""
        return self.runs * self.inner


def local_turn_of(computation: Computation, signature: Signature) -> LocalTurn | None:
    """Return the transposition that a computation is, if it is one of those that gain by this."""
    turned = computation.result
    source = computation[turned.operands[0]] if turned.opcode == "transpose" else turned
    shape, given, device = turned.shape, source.shape, signature.device
    if source.opcode != "parameter" or not isinstance(shape, Shape) or signature.misaligned:
        return None
    if not isinstance(given, Shape) or not (shape.is_row_major and given.is_row_major):
        return None
    order = _order(turned)
    unit = _unit(given, order)
    if not unit:
        return None
    assert isinstance(source.payload, int)
    for found in _pieces(source.payload, order, given, unit):
        size = found.held * found.outer * unit
        fits = size <= device.shared // FEWEST_BLOCKS - SPARE_BYTES
        fills = found.batches * found.pieces >= 2 * FEWEST_BLOCKS * device.multiprocessors
        if fits and fills and (written := _written(found)):
            return written
    return None


def _order(turned: Instruction) -> tuple[int, ...]:
    held = turned.attrs["dimensions"]
    assert isinstance(held, tuple)
    return tuple(d for d in held if isinstance(d, int))


def _unit(given: Shape, order: tuple[int, ...]) -> int:
    """Return how many bytes can be moved at once, or 0 where other forms do well."""
    size, last = given.dtype.size, len(order) - 1
    if order == tuple(range(len(order))):
        return 0
    if order[-1] != last:
        rows = [given.dims[d] for d in (last, order[-1])]
        # A thread takes a short one whole, which is as good where words divide the other one.
        rows = [n for n in rows if n >= FEWEST] or rows
        is_ragged = any(n * size % WORD for n in rows)
        return size if is_ragged and size <= LARGEST else 0
    row = given.dims[-1] * size
    if row % ACCESS_BYTES == 0 or row > LONGEST_ROW:
        return 0
    return next(unit for unit in UNITS if row % unit == 0)


def _pieces(parameter: int, order: tuple[int, ...], given: Shape, unit: int) -> Iterator[LocalTurn]:
    """Yield ways to cut a transposition into pieces, the best first."""
    shape = *given.dims[:-1], given.dims[-1] * given.dtype.size // unit
    kept = next(d for d, place in enumerate(order) if d != place)
    steps = tuple(prod(shape[d + 1 :]) for d in order[kept:])
    dims = tuple(shape[d] for d in order[kept:])
    stretches, stretch = prod(shape[:kept]), prod(dims)
    whole = stretches, dims, (stretch, *steps)
    together = PIECE_BYTES[0] // (stretch * unit)
    if together:
        yield LocalTurn(parameter, unit, 1, (), *whole, together)
        return
    at = order.index(kept) - kept
    parts = dims[:at], dims[at], dims[at + 1 :]
    for most in PIECE_BYTES if order[-1] == len(order) - 1 else ():
        held = (most - ACCESS_BYTES) * dims[at] // (stretch * unit)
        if held:
            held = -(-dims[at] // -(-dims[at] // held))
            if held * prod(parts[2]) * unit >= RUN_BYTES:
                yield LocalTurn(parameter, unit, stretches, *parts, steps, held)
    yield LocalTurn(parameter, unit, 1, (), *whole, 1)


def _written(what: LocalTurn) -> LocalTurn | None:
    """Return the piece, written in accesses as wide as pays; None where threads meet in banks."""
    found = [replace(what, vector=word // what.unit) for word in WORDS if word >= what.unit]
    ways = {way: _ways(way) for way in found}
    best = min(found, key=lambda way: ways[way] / way.unit + ACCESS_COST / (way.vector * way.unit))
    return best if ways[best] <= MOST_WAYS * best.unit else None


def _ways(what: LocalTurn) -> float:
    """Return how many threads of a warp meet in a bank of shared memory, on average over warps."""
    met = []
    for first in range(0, WARP * what.vector * WARPS, WARP * what.vector):
        words: dict[int, set[int]] = {}
        for lane in range(WARP):
            rest, place = (first + lane * what.vector) % (what.held * what.inner), 0
            for n, step in _minor_first(what):
                place += rest % n * step
                rest //= n
            for word in range(place * what.unit // 4, -(-(place + 1) * what.unit // 4)):
                words.setdefault(word % WARP, set()).add(word)
        met.append(max(map(len, words.values())))
    return sum(met) / len(met)


def _minor_first(what: LocalTurn) -> list[tuple[int, int]]:
    """Return the dimensions and distances of a run, the most minor one first."""
    dims, steps = (what.held, *what.behind), what.steps[len(what.before) :]
    return list(zip(reversed(dims), reversed(steps), strict=True))


def local_turn_kernel(what: LocalTurn, signature: Signature) -> KernelSource:
    """Return the kernel."""
    device, size = signature.device, what.held * what.outer * what.unit
    shared = (-(-size // ACCESS_BYTES) + 1) * ACCESS_BYTES
    fit = max(FEWEST_BLOCKS, device.shared // (shared + SYSTEM_BYTES))
    threads = next((n for n in THREADS if n * fit >= device.threads), THREADS[-1])
    writer = _Writer(ElementEmitter({}, signature.index_type), what, threads)
    writer.write()
    lines, resident = writer.emit.needed_lines(), max(1, min(fit, device.threads // threads))
    text = signature.declare(lines, threads, wide=True, resident=resident)
    return KernelSource(signature.name, text, (what.batches * what.pieces, 1, 1), threads, shared)


class _Writer:
    """Writes the body."""

    def __init__(self, emit: ElementEmitter, what: LocalTurn, threads: int) -> None:
        self.emit, self.what, self.threads = emit, what, threads
        self.kind = f"hlo::u{8 * what.unit}"

    def write(self) -> None:
        """Write all lines."""
        emit, what = self.emit, self.what
        batch, piece = emit.split(emit.integer(emit.block_index), (what.batches, what.pieces))
        top = emit.integer(f"{piece} * {what.held}")
        rows = str(what.held)
        if what.count % what.held:
            rows = emit.integer(f"{what.count} - {top} < {rows} ? {what.count} - {top} : {rows}")
        base = emit.integer(f"{batch} * {what.count * what.outer}")
        self._read(emit.integer(f"{base} + {top} * {what.outer}"), rows)
        emit.line("__syncthreads();")
        inner = what.inner
        self._store(emit.integer(f"{base} + {top} * {inner}"), emit.integer(f"{rows} * {inner}"))

    def _read(self, begin: Expr, rows: Expr) -> None:
        """Read a piece; the elements of the argument from `begin` on are `held`."""
        emit, what, vector = self.emit, self.what, ACCESS_BYTES // self.what.unit
        first = emit.integer(f"{begin} / {vector}")
        last = f"({begin} + {rows} * {what.outer} + {vector - 1}) / {vector}"
        count = emit.integer(f"{last} - {first}")
        emit.line("hlo::Access* const words = (hlo::Access*)hlo::dynamic_shared();")
        emit.line(f"const auto given = (const hlo::Access*)p{what.parameter} + {first};")
        most = (what.held * what.outer + 2 * vector - 2) // vector
        rounds = -(-most // self.threads)
        rounds = -(-rounds // -(-rounds // ROUNDS))
        every = f"for (int k = 0, at = n; k < {rounds}; ++k, at += {self.threads})"
        with emit.block(f"for (int n = threadIdx.x; n < {count}; n += {rounds * self.threads})"):
            emit.line(f"hlo::Access some[{rounds}];")
            for move in ("some[k] = given[at];", "words[at] = some[k];"):
                emit.line("#pragma unroll")
                with emit.block(every):
                    emit.line(f"if (at < {count}) {move}")
        skipped = emit.integer(f"{begin} - {first} * {vector}")
        emit.line(f"const {self.kind}* const held = (const {self.kind}*)words + {skipped};")

    def _store(self, begin: Expr, length: Expr) -> None:
        """Write the runs, each of `length` elements; the first begins at `begin` in the result."""
        emit, what, vector = self.emit, self.what, self.what.vector
        emit.line(f"{self.kind}* const to = ({self.kind}*)r0;")
        accesses = (what.held * what.inner + 2 * vector - 2) // vector
        head = f"for (int n = threadIdx.x; n < {what.runs * accesses}; n += {self.threads})"
        with emit.block(head):
            run, number = emit.split("n", (what.runs, accesses))
            start = emit.integer(f"{begin} + {run} * {what.count * what.inner}")
            word = emit.integer(f"{start} / {vector} + {number}")
            low = emit.integer(f"{word} * {vector} - {start}")
            index = *emit.split(run, what.before), low
            steps = *what.steps[: len(what.before)], what.steps[-1]
            terms = [f"{i} * {step}" for i, step in zip(index, steps, strict=True)]
            place = emit.integer(" + ".join(terms))
            with emit.block(f"if ({low} >= 0 && {low} <= {length} - {vector})"):
                values = [self._value(place, low, str(k)) for k in range(vector)]
                for k, value in enumerate(values):
                    emit.line(f"to[{word} * {vector} + {k}] = {value};")
            with emit.block("else"):
                emit.line("#pragma unroll")
                with emit.block(f"for (int k = 0; k < {vector}; ++k)"):
                    own = emit.integer(f"{low} + k")
                    with emit.block(f"if ((unsigned){own} < (unsigned){length})"):
                        value = self._value(place, low, "k")
                        emit.line(f"to[{start} + {own}] = {value};")

    def _value(self, place: Expr, low: Expr, further: Expr) -> Expr:
        """Return the element `further` behind number `low` of a run, which is at `place`.

        It would lie as many of the last distance behind that, but for the ends of dimensions on the
        way; quotients say how many those are.
        """
        emit, bound = self.emit, self.what.held * self.what.inner
        (count, step), *rest = _minor_first(self.what)
        terms, quotient = [place, f"{further} * {step}"], f"{low} + {further}"
        for next_count, next_step in rest:
            quotient = emit.integer(_divided(quotient, count, bound))
            terms.append(f"{quotient} * {next_step - count * step}")
            bound = -(-bound // count)
            count, step = next_count, next_step
        name = emit.fresh("b")
        emit.line(f"const {self.kind} {name} = held[{' + '.join(terms)}];")
        return name


def _divided(number: Expr, divisor: int, bound: int) -> Expr:
    """Return a quotient of a number from 0 to below `bound`, by one product where that is exact."""
    for shift in range(32):
        factor = -(-(1 << shift) // divisor)
        is_exact = (factor * divisor - (1 << shift)) * (bound - 1) < 1 << shift
        if is_exact and factor * (bound - 1) < 1 << 32:
            return f"(int)((hlo::u32)({number}) * {factor}u >> {shift})"
    return f"({number}) / {divisor}"
