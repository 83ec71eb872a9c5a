"""The form of a transposition of narrow elements within stretches that a block holds.

Where the first dimensions stay first, what lies between two of their indices is one stretch of the
argument, and one of the result. A block reads some stretches as they lie, by whole words, into
shared memory, and writes them as they lie in the result, by whole words too: so it matters to no
access of memory how long rows are, or where in a word they begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.ctypes import storage_type
from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.source import ACCESS_BYTES, KernelSource, Signature
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import Computation, Instruction, Shape
from hlo2graph.ops.device import Expr

THREADS = 256
WORD = 8  # bytes that are read at once
LARGEST = 2  # bytes of an element: of wider ones rows are wide enough by themselves
SPARE_BYTES = 2 << 10  # of a block, for the words around its stretches, and for the system
BLOCKS = 2  # that share a multiprocessor, so that one writes while another reads
FEWEST_BYTES = 16 << 10  # of a block's stretches
MOST_WAYS = 4  # threads of a warp that meet in a bank, for each byte of an element
WARPS = 8  # that are looked at for that
ROUNDS = 8  # words of a thread under way at once


@dataclass(frozen=True, slots=True)
class LocalTurn:
    """Each stretch has the dimensions `dims` in the result; `steps` are those of the argument.

    A block has `together` of the `stretches`.
    """

    parameter: int
    dims: tuple[int, ...]
    steps: tuple[int, ...]
    stretches: int
    together: int

    @property
    def size(self) -> int:
        """Elements of a stretch."""
        return prod(self.dims)


def local_turn_of(computation: Computation, signature: Signature) -> LocalTurn | None:
    """Return the transposition that a computation is, if it is one of those that gain by this."""
    turned = computation.result
    source = computation[turned.operands[0]] if turned.opcode == "transpose" else turned
    shape, given = turned.shape, source.shape
    if source.opcode != "parameter" or not isinstance(shape, Shape) or signature.misaligned:
        return None
    if not isinstance(given, Shape) or not (shape.is_row_major and given.is_row_major):
        return None
    if shape.dtype.size > LARGEST or not _is_ragged(turned, shape, given):
        return None
    order = _order(turned)
    kept = next(d for d, place in enumerate(order) if d != place)
    stretches, size = prod(shape.dims[:kept]), prod(shape.dims[kept:])
    room = signature.device.shared // BLOCKS - SPARE_BYTES
    held = size * shape.dtype.size
    together = max(1, FEWEST_BYTES // held)
    if held > room or stretches < 2 * BLOCKS * signature.device.multiprocessors * together:
        return None
    strides = [prod(given.dims[d + 1 :]) for d in range(given.rank)]
    assert isinstance(source.payload, int)
    steps = tuple(strides[order[d]] for d in range(kept, shape.rank))
    found = LocalTurn(source.payload, shape.dims[kept:], steps, stretches, together)
    return found if _ways(found, shape.dtype.size) <= MOST_WAYS * shape.dtype.size else None


def _ways(what: LocalTurn, size: int) -> float:
    """Return how many threads of a warp meet in a bank of shared memory, on average over warps."""
    met, apart = [], ACCESS_BYTES // size
    for first in range(0, WARP * apart * WARPS, WARP * apart):
        words: dict[int, set[int]] = {}
        for lane in range(WARP):
            rest, place = (first + lane * apart) % what.size, 0
            for n, step in zip(reversed(what.dims), reversed(what.steps), strict=True):
                place += rest % n * step
                rest //= n
            word = place * size // 4
            words.setdefault(word % WARP, set()).add(word)
        met.append(max(map(len, words.values())))
    return sum(met) / len(met)


def _order(turned: Instruction) -> tuple[int, ...]:
    held = turned.attrs["dimensions"]
    assert isinstance(held, tuple)
    return tuple(d for d in held if isinstance(d, int))


def _is_ragged(turned: Instruction, shape: Shape, given: Shape) -> bool:
    """Tell whether words do not divide the rows that other forms would read or write."""
    order = _order(turned)
    if order == tuple(range(len(order))):
        return False
    whole = WORD // shape.dtype.size
    return bool(shape.dims[-1] % whole or given.dims[-1] % whole)


def local_turn_kernel(what: LocalTurn, signature: Signature) -> KernelSource:
    """Return the kernel."""
    (result,) = signature.results
    writer = _Writer(ElementEmitter({}, signature.index_type), what, result)
    writer.write()
    text = signature.declare(writer.emit.needed_lines(), THREADS, wide=True, resident=BLOCKS)
    blocks = -(-what.stretches // what.together)
    shared = what.together * what.size * result.dtype.size + 2 * ACCESS_BYTES
    return KernelSource(signature.name, text, (blocks, 1, 1), THREADS, shared)


class _Writer:
    """Writes the body."""

    def __init__(self, emit: ElementEmitter, what: LocalTurn, result: Shape) -> None:
        self.emit, self.what, self.dtype = emit, what, result.dtype
        self.elements = result.elements
        self.vector = ACCESS_BYTES // result.dtype.size

    def write(self) -> None:
        """Write all lines."""
        emit, what, kind = self.emit, self.what, storage_type(self.dtype)
        per = WORD // self.dtype.size
        block = what.together * what.size
        begin = emit.integer(f"{emit.block_index} * {block}")
        end = f"{begin} + {block}"
        if what.stretches % what.together:
            end = f"{end} < {self.elements} ? {end} : {self.elements}"
        end = emit.integer(end)
        first = emit.integer(f"{begin} / {per}")
        emit.line("hlo::u64* const words = (hlo::u64*)hlo::dynamic_shared();")
        emit.line(f"const hlo::u64* const given = (const hlo::u64*)p{what.parameter} + {first};")
        count = emit.integer(f"({end} + {per - 1}) / {per} - {first}")
        emit.line(f"#pragma unroll {ROUNDS}")
        with emit.block(f"for (int n = threadIdx.x; n < {count}; n += {THREADS})"):
            emit.line("words[n] = given[n];")
        emit.line("__syncthreads();")
        before = emit.integer(f"{begin} - {first} * {per}")
        emit.line(f"const {kind}* const held = (const {kind}*)words + {before};")
        self._store(begin, end)

    def _store(self, begin: Expr, end: Expr) -> None:
        emit, vector = self.emit, self.vector
        low = emit.integer(f"({begin} + {vector - 1}) / {vector} * {vector}")
        low = emit.integer(f"{low} < {end} ? {low} : {end}")
        high = emit.integer(f"{end} / {vector} * {vector}")
        high = emit.integer(f"{high} > {low} ? {high} : {low}")
        at = emit.fresh("n")
        head = f"for ({emit.index_type} {at} = {low} + threadIdx.x * {vector}; {at} < {high}; "
        with emit.block(f"{head}{at} += {THREADS * vector})"):
            places = [emit.integer(f"{at} + {k}") if k else at for k in range(vector)]
            values = [self._value(place, begin) for place in places]
            # In whole accesses, as the numbers of their elements are multiples of as many.
            word = emit.integer(f"{at} / {vector} * {vector}")
            for k, value in enumerate(values):
                emit.line(f"r0[{word} + {k}] = {value};")
        ends = emit.integer(f"{low} - {begin} + {end} - {high}")
        with emit.block(f"if (threadIdx.x < {ends})"):
            own = f"{begin} + threadIdx.x"
            behind = f"{high} + threadIdx.x - ({low} - {begin})"
            place = emit.integer(f"{own} < {low} ? {own} : {behind}")
            emit.line(f"r0[{place}] = {self._value(place, begin)};")

    def _value(self, place: Expr, begin: Expr) -> Expr:
        """Return the element that the result has at a place of a block's stretches."""
        emit, what = self.emit, self.what
        number = emit.integer(f"{place} - {begin}")
        index: Sequence[Expr] = emit.split(number, (what.together, *what.dims))
        steps = (what.size, *what.steps)
        terms = [
            i if step == 1 else f"{i} * {step}"
            for i, step in zip(index, steps, strict=True)
            if i != "0"
        ]
        name = emit.fresh("b")
        emit.line(f"const {storage_type(self.dtype)} {name} = held[{' + '.join(terms) or '0'}];")
        return name
