"""How the rows form divides its work: threads a row, elements a thread, and whether it holds them.

A thread takes `vector` columns side by side, as many as one access of 16 bytes has, then as many
`team.slices * vector` columns further on. `chunks` of these are under way at once: what a
multiprocessor waits for has to be some 50 kB for memory to be busy all the time. Where all of a
row's elements fit into its threads' registers, they are read once, whatever the number of stages;
longer rows are read again at each stage, from the caches.

Where all rows are on the device at once, nothing hides what a read takes: a thread then begins with
all that it reads, what only a later stage asks for too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlo2graph.backends.cuda.forms.folds.folding import (
    MOST_LINES,
    fewer_for_lines,
    large_sizes,
    lines_each,
    power_below,
)
from hlo2graph.backends.cuda.forms.folds.held_row import (
    WIDEST,
    Holding,
    halves,
    looks,
    most_held,
    most_of,
    resident,
)
from hlo2graph.backends.cuda.forms.folds.kept_row import MOST_KEPT, Kept, kept_of
from hlo2graph.backends.cuda.forms.folds.shifted_rows import (
    WORD,
    may_shift,
    of_columns,
    side_by_side,
    whole_runs,
)
from hlo2graph.backends.cuda.forms.windows import patch_of
from hlo2graph.backends.cuda.source import ACCESS_BYTES, Signature
from hlo2graph.backends.cuda.team import WARP, Team
from hlo2graph.hlo import Computation
from hlo2graph.ops.region import Rows

BLOCK = 128  # threads of a block of rows that need fewer: few wait for each other
SHORT = 256  # the same where rows need less than a warp, or are few: fewer blocks for little work
LONG = 256  # threads of a row that is read in rounds, at least
BYTES_AHEAD = 64  # that a thread waits for at once
LEAST_RUN = 128  # bytes side by side that the threads of a row read at once
SHIFTED_BYTES = 8  # of a word, in rows that begin anywhere in one
SHIFTED_EACH = 48  # elements of a thread of such a row, about
SHIFTED_KEPT = 2  # such rows in a multiprocessor's shared memory, at most, but of softmaxes
FEWEST_EACH = 8  # elements of a thread, of a row that is read in less than words
CACHED = 24 << 20  # bytes of rows under way at once that the device's cache keeps
FULL_REGISTERS = 1024  # threads of a multiprocessor, of which each has 64 registers
MOST_AHEAD = 32  # elements that a thread waits for at once


@dataclass(frozen=True, slots=True)
class RowPlan:
    """`vectors` runs of `vector` columns make a row.

    The columns of a run lie side by side or, where it is one, in a `patch` of an image: so many
    rows and columns of that.
    """

    team: Team
    vector: int
    vectors: int
    chunks: int
    held: bool
    reads_first: bool  # before the first fold, all that any stage asks for
    patch: tuple[int, int] | None = None
    is_shifted: bool = False  # rows begin anywhere in a run; see shifted_rows
    reads_beside: bool = False  # what has an element a column, by words too
    kept: Kept | None = None  # of a row in shared memory
    resident: int = 0  # blocks that a multiprocessor has at once, where that is known


def plan_rows(
    region: Rows, signature: Signature, computation: Computation, *, is_softmax: bool = False
) -> RowPlan:
    """Return the plan for the region that `computation` is.

    `is_softmax` says that its folds are those of one of narrow elements.
    """
    lines = lines_each(computation)
    reads, writes = large_sizes(region, signature, computation)
    sizes = reads + writes or [leaf.dtype.size for leaf in signature.results]
    height, width = patch_of(computation, region.space.shape)
    size = height * width
    if size == 1:
        shifted = _shifted(region, signature, reads or sizes, computation, is_softmax=is_softmax)
        if shifted is not None:
            return shifted
    beside = fewer_for_lines(side_by_side(region, min(sizes)), lines) if size == 1 else width
    vector = max(beside, size)
    vectors = region.steps // vector
    most = min(WIDEST, power_below(vectors))
    ahead = max(1, min(BYTES_AHEAD // (vector * sum(reads or sizes)), MOST_AHEAD // vector))
    least = _least_slices(region, beside * min(sizes))
    slices = _slices(region, signature, vectors, ahead, least)
    values = max(1, len(reads)) * (2 if max(sizes) > 4 else 1)
    holding = Holding(values, lines, lambda threads: vector * -(-vectors // threads))
    while slices < most and not holding.fits(slices, MOST_LINES):
        slices *= 2
    kept = kept_of(region, computation, signature, in_parts=is_softmax) if size == 1 else None
    held = holding.fits(slices) and not _is_better(kept, slices, region, signature)
    kept = None if held else kept
    cluster = holding.cluster(slices, region, signature, kept)
    if cluster and cluster.slices > vectors:  # each thread has a run of columns
        cluster = None
    if cluster:
        held, kept, slices = True, None, cluster.slices
    team = cluster or Team(_lanes(region, signature, slices), slices)
    if held and size == 1:
        whole = _by_words(team, values, region, signature, max(reads or sizes), computation)
        if whole is not None:
            return whole
    if kept and kept.is_read:
        return _copied(kept, region, signature, lines)
    if held:
        vector = _fuller(region.steps, vector, slices) if size == 1 else size
        vectors = region.steps // vector
        chunks = -(-vectors // slices)
    else:
        passes = looks(region, signature)
        chunks = max(1, min(ahead, MOST_LINES // (lines * vector * passes)))
        again = region.steps * sum(reads or sizes) if passes > 1 else 0
        slices = kept.team.slices if kept else _long_slices(region, signature, most, again)
        chunks = _even_chunks(vectors // slices, chunks)
        team = Team(_lanes(region, signature, slices), slices)
    at_once = vector * chunks * len(signature.parameters) <= most_held(team.threads // team.lanes)
    first = held and at_once and _is_resident(region, signature, slices)
    patch = (height, width) if size > 1 else None
    blocks = kept.blocks if kept else 0
    return RowPlan(team, vector, vectors, chunks, held, first, patch, kept=kept, resident=blocks)


def _shifted(
    region: Rows,
    signature: Signature,
    sizes: Sequence[int],
    computation: Computation,
    *,
    is_softmax: bool,
) -> RowPlan | None:
    """Return the plan of rows that begin anywhere in a word, if elements are narrow.

    `sizes` are the bytes of an element of each array that is read, or of what is written. Only of
    softmaxes, which take one look, are more kept. What is read beside a row goes by words, but
    where rows are held: there caches do as well, and clusters have no registers left.
    """
    vector, lines = SHIFTED_BYTES // max(sizes), lines_each(computation)
    if side_by_side(region, max(sizes)) * max(sizes) >= WORD or not may_shift(region):
        return None
    if signature.misaligned:
        return None
    slices = 2 * vector  # more than a row's ends have elements
    enough = signature.device.multiprocessors * signature.device.threads // 2
    while slices < WIDEST and (
        region.steps > SHIFTED_EACH * slices or region.results * slices < enough
    ):
        slices *= 2
    vectors = whole_runs(region.steps, vector)

    def runs(threads: int) -> int:
        return -(-(vectors + 1) // threads)

    holding = Holding(len(sizes), lines, lambda threads: vector * runs(threads) + 1)
    most_kept = MOST_KEPT if is_softmax else SHIFTED_KEPT
    kept = kept_of(region, computation, signature, most_kept, in_parts=is_softmax)
    held = holding.fits(slices) and not _is_better(kept, slices, region, signature)
    kept = None if held else kept
    cluster = holding.cluster(slices, region, signature, kept)
    if cluster:
        held, kept, slices = True, None, cluster.slices
    if kept and kept.is_read:
        return _copied(kept, region, signature, lines)
    chunks = runs(slices)
    if not held:
        passes = looks(region, signature)
        ahead = min(BYTES_AHEAD // (vector * sum(sizes)), MOST_AHEAD // vector)
        chunks = max(1, min(ahead, MOST_LINES // (lines * vector * passes)))
        again = region.steps * sum(sizes) * (passes > 1)
        slices = kept.team.slices if kept else _long_slices(region, signature, WIDEST, again)
        chunks = _even_chunks(vectors // slices, chunks)
    if vectors < slices:
        return None
    team = cluster or Team(_lanes(region, signature, slices), slices)
    blocks = kept.blocks if kept else 0
    plan = RowPlan(team, vector, vectors, chunks, held, reads_first=False, is_shifted=True)
    return replace(plan, reads_beside=not held, kept=kept, resident=blocks)


def _by_words(
    team: Team,
    values: int,
    region: Rows,
    signature: Signature,
    size: int,
    computation: Computation,
) -> RowPlan | None:
    """Return the plan of rows of words that a team holds, if they begin anywhere in an access.

    They go by whole accesses if the threads have registers for as many as that makes. A block's
    threads are then to have a quarter more elements at most, of rows that it does not read first.
    Where what is read beside long ones keeps memory waiting, it makes way for two of half its size.
    """
    vector = ACCESS_BYTES // size
    if size != WORD or side_by_side(region, size) == vector or not may_shift(region):
        return None
    vectors = whole_runs(region.steps, vector)
    chunks = -(-(vectors + 1) // team.slices)
    each = vector * chunks + 1
    if signature.misaligned or each * values > most_of(team):
        return None
    plan = RowPlan(team, vector, vectors, chunks, held=True, reads_first=False, is_shifted=True)
    if team.blocks > 1:
        return replace(plan, resident=resident(team))
    is_more = 4 * each > 5 * -(-region.steps // team.slices)
    if is_more or not 2 * vector <= team.slices <= vectors:
        return None
    if _is_resident(region, signature, team.slices):
        return None
    plan = replace(plan, reads_beside=True)
    pair = halves(team, region, signature) if of_columns(region, computation) else None
    return replace(plan, team=pair, resident=resident(pair)) if pair else plan


def _copied(kept: Kept, region: Rows, signature: Signature, lines: int) -> RowPlan:
    """Return the plan of rows that are kept as they are read, in words that they begin anywhere in.

    Where a thread has less than 64 registers, these are for half as much at once.
    """
    vector, team = kept.vector, kept.team
    is_shifted = region.steps % vector > 0
    vectors = whole_runs(region.steps, vector) if is_shifted else region.steps // vector
    half = kept.blocks * team.threads > FULL_REGISTERS
    ahead = MOST_AHEAD // vector // (2 if half else 1)
    most = MOST_LINES // (lines * vector * looks(region, signature))
    chunks = _even_chunks(vectors // team.slices, min(ahead, most))
    plan = RowPlan(team, vector, vectors, chunks, held=False, reads_first=False)
    plan = replace(plan, is_shifted=is_shifted, reads_beside=is_shifted)
    return replace(plan, kept=kept, resident=kept.blocks)


def _is_better(kept: Kept | None, threads: int, region: Rows, signature: Signature) -> bool:
    """Tell whether rows are better kept in shared memory than held by the largest of blocks."""
    if kept is None or kept.blocks != MOST_KEPT or threads < WIDEST:
        return False
    return kept.is_for_all(region, signature)


def _even_chunks(words: int, most: int) -> int:
    """Return how many of so many words to take at once, for few to be left to be taken singly."""
    most = max(1, min(words, most))
    return min(range(most, most // 2, -1), key=lambda chunks: words % chunks)


def _fuller(steps: int, vector: int, slices: int) -> int:
    """Return `vector`, or half of it where that leaves a tenth less of the threads' work idle."""

    def taken(vector: int) -> int:
        return -(-steps // (vector * slices)) * vector * slices

    half = vector // 2
    return half if half and 10 * taken(half) < 9 * taken(vector) else vector


def _slices(region: Rows, signature: Signature, vectors: int, ahead: int, least: int) -> int:
    """Return the threads a row that keep memory busy: more where there are few rows."""
    found = max(power_below(max(1, vectors // ahead)), least)
    enough = signature.device.multiprocessors * signature.device.threads // 2
    while found < WIDEST and region.results * found < enough:
        found *= 2
    return min(found, WIDEST, power_below(vectors))


def _least_slices(region: Rows, run: int) -> int:
    """Return the threads that read enough of a row side by side, each `run` bytes.

    Where that is less than a word, rows have a warp at most, and threads some elements each: to
    fold them together would else take longer than the elements.
    """
    found = power_below(max(1, LEAST_RUN // run))
    if run >= WORD:
        return found
    return min(found, WARP, power_below(max(1, region.steps // FEWEST_EACH)))


def _long_slices(region: Rows, signature: Signature, most: int, again: int) -> int:
    """Return the threads of a row that is read in rounds, `again` bytes of it more than once.

    With more threads fewer rows are under way at once, so that these lie in the cache.
    """
    found = LONG
    threads = signature.device.multiprocessors * signature.device.threads
    while found < WIDEST and (
        region.results * found < threads or threads // found * again > CACHED
    ):
        found *= 2
    return min(found, most)


def _is_resident(region: Rows, signature: Signature, slices: int) -> bool:
    """Tell whether the device has room for all rows at once."""
    return region.results * slices <= signature.device.multiprocessors * signature.device.threads


def _lanes(region: Rows, signature: Signature, slices: int) -> int:
    """Return the rows a block: fewer where each multiprocessor would not get two blocks.

    Where one block each is enough for all rows, blocks are large: a graph brings kernels of so few
    blocks to the device before the one in front of them has ended.
    """
    least, device = max(1, WARP // slices), signature.device
    if region.results * slices <= device.multiprocessors * SHORT:
        return max(least, min(SHORT // slices, 1 << (region.results - 1).bit_length()))
    lanes = max(1, (BLOCK if slices >= WARP else SHORT) // slices)
    while lanes > least and region.results < 2 * device.multiprocessors * lanes:
        lanes //= 2
    return lanes
