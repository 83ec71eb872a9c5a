"""Who shares rows of attention: warps of a block, blocks of a cluster; scores are in registers.

Where rows are many each warp has some for itself. Where they are few all warps of a block have the
same, and share out the keys; and where blocks are few too, those of a cluster do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.dot_parts import CHUNK, MOST_WARPS, ROWS
from hlo2graph.backends.cuda.forms.products.product import DotProduct
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.hlo import DType
from hlo2graph.ops.expect import integers, written
from hlo2graph.ops.region import Attention
from hlo2graph.ops.region_attention import FEW_ROWS, MOST_KEYS, MOST_LONG_STEPS
from hlo2graph.ops.region_softmax import Softmax, are_shares, softmax_of

MANY = 16  # warps of a multiprocessor, from which on they need not share rows
ENOUGH = 8  # warps of a multiprocessor, beyond which no more share rows
LONG = 2  # chunks of keys of each warp, with which twice as many may
FEWEST_CHUNKS = 2  # of each warp, where blocks share out the keys
WIDE = 192  # elements of a key and a value together, from which a thread needs all registers
THREADS = 512  # of a multiprocessor, where they are fewer
F32_THREADS = 384  # the same of f32, which takes more of them


@dataclass(frozen=True, slots=True)
class Sharing:
    """How many warps of a block have the same rows, and how many blocks."""

    warps: int = 1
    blocks: int = 1

    @property
    def all(self) -> int:
        """Warps that share out the keys."""
        return self.warps * self.blocks


def sharing_of(form: Form, region: Attention) -> Sharing | None:
    """Return who shares rows; None where scores do not stay in registers."""
    weighing, computation = region.weighing, form.computation
    scores, product = computation[weighing.scores], DotProduct(form)
    lhs, keys = written(computation[scores.operands[0]]), written(scores).dims[weighing.key]
    rows, values = (product.sides[k] for k in (weighing.weights, 1 - weighing.weights))
    deep = prod(lhs.dims[d] for d in integers(scores, "lhs_contracting_dims"))
    are_few, is_f32 = rows.extent <= FEW_ROWS, lhs.dtype.name == "f32"
    if is_f32 and (are_few or form.signature.precise):  # tensor cores would round it
        return None
    if max(deep, values.extent) > MOST_LONG_STEPS or rows.extent == 1:
        return None
    tiles, chunks = prod(product.batches) * rows.cut(ROWS).tiles, -(-keys // CHUNK)
    device = form.signature.device
    are_many = tiles >= device.multiprocessors * MANY
    if shared_softmax(form, region) is None:
        return Sharing() if not are_few and (are_many or keys > MOST_KEYS) else None
    if are_many and not are_few:
        return Sharing()
    most = min(MOST_WARPS, threads_of(deep + values.extent, lhs.dtype) // WARP)
    wanted, more = (-(-device.multiprocessors * n // tiles) for n in (ENOUGH, 2 * ENOUGH))
    wanted = max(wanted, min(more, chunks // LONG))
    warps = 1 << (min(most, keys // CHUNK, wanted).bit_length() - 1)
    blocks = 1
    while (
        warps > 1
        and 2 * blocks <= device.cluster
        and 2 * blocks * tiles <= device.multiprocessors // 2  # with more, clusters wait for room
        and 2 * blocks * warps * FEWEST_CHUNKS <= chunks
    ):
        blocks *= 2
    return Sharing(warps, blocks)


def threads_of(elements: int, dtype: DType) -> int:
    """Return how many threads a multiprocessor has, given the elements of a key and a value."""
    if elements >= WIDE:
        return THREADS // 2
    return F32_THREADS if dtype.name == "f32" else THREADS


def shared_softmax(form: Form, region: Attention) -> Softmax | None:
    """Return the softmax whose weights are summed, if they are a softmax's and no others."""
    stages, computation = region.rows.stages, form.computation
    weights = form.instr.operands[region.weighing.weights]
    found = softmax_of(computation, form.computations, stages)
    return found if found and are_shares(computation, found, weights) else None
