"""The dot form of large products on tensor cores, whose operands meet in shared memory (staged.py).

Of smaller ones each warp reads its own, since nobody would wait for the others (dot_tensor.py).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hlo2graph.backends.cuda.forms.dot_tensor import fills_products
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.product import DotProduct
from hlo2graph.backends.cuda.forms.staged import FEW_BLOCKS, STAGES, StagedWriter
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.hlo import Instruction, Shape
from hlo2graph.ops.expect import written
from hlo2graph.ops.views import is_view

FEWEST_FLOPS = 1 << 27  # below, nobody waits for others
FEWEST_STEPS = 128  # of a sum
FEWEST = 16  # rows and columns, below which most of a tile would be empty


def suits_stages(form: Form) -> bool:
    """It is one product, large enough for tiles in shared memory."""
    product = DotProduct(form)
    steps = prod(product.steps)
    return (
        not form.others
        and steps >= FEWEST_STEPS
        and min(side.extent for side in product.sides) >= FEWEST
        and 2 * written(form.instr).elements * steps >= FEWEST_FLOPS
        and fills_products(form, product)
    )


def dot_staged_kernel(form: Form) -> KernelSource:
    """Return the kernel of a dot and of the elementwise work on both sides of it."""
    shown = _with_views_as_parameters(form)
    writer = _Writer(shown, DotProduct(shown))
    in_turn = writer.kernel()
    if not all(reader.is_plain for reader in writer.readers):
        return in_turn
    stages = STAGES if writer.resident <= FEW_BLOCKS else 2
    return _Writer(shown, DotProduct(shown), stages).kernel()


class _Writer(StagedWriter):
    """Takes more steps at once than that of a convolution: they lie in longer lines."""

    words = 64


def _with_views_as_parameters(form: Form) -> Form:
    """Return the form with what only shows a parameter, of the dot's operands, as one of its own.

    So its elements are found at one index, and neighbours are seen to be such.
    """
    computation, shown = form.computation, dict[str, Instruction]()
    for name in form.instr.operands:
        source = computation[name]
        while source.operands and _shows(source, computation[source.operands[0]]):
            source = computation[source.operands[0]]
        if source.opcode == "parameter":
            shown[name] = replace(source, name=name, shape=computation[name].shape)
    instructions = tuple(shown.get(i.name, i) for i in computation.instructions)
    return replace(form, computation=replace(computation, instructions=instructions))


def _shows(instr: Instruction, operand: Instruction) -> bool:
    return isinstance(operand.shape, Shape) and is_view(instr, operand.shape)
