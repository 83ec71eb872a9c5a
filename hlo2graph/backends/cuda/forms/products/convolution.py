"""The convolution form: a product of matrices on tensor cores whose lhs is gathered on the way.

Nothing is laid out as a matrix in memory. Large operands meet in shared memory (staged.py; those of
gradients whose taps share what they read, staged_gradient.py); of small ones a warp reads straight
into registers, as for dots. Where most of a tile would be empty, a thread computes each result
instead, as in a loop; not where the sum is long, as in gradients of few weights: a tile's warps
share it out, a thread has it all.
"""

from __future__ import annotations

from math import prod

from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.convolution_product import ConvolutionProduct
from hlo2graph.backends.cuda.forms.products.dot_tensor import (
    FEWEST_ROWS,
    fills_products,
    tensor_kernel,
)
from hlo2graph.backends.cuda.forms.products.staged import staged_kernel
from hlo2graph.backends.cuda.forms.products.staged_gradient import gradient_kernel
from hlo2graph.backends.cuda.forms.products.staged_image import image_kernel
from hlo2graph.backends.cuda.source import KernelSource
from hlo2graph.ops.expect import written
from hlo2graph.ops.kernel_gradient import tap_rows

FEWEST_FLOPS = 1 << 26  # of a convolution whose operands are staged: below, nobody waits for them
FEWEST_STEPS = 128  # of a sum of such
LONG = 512  # steps that a tile's warps share out, though most of it be empty
FEWEST = 16  # rows and columns of a staged tile, below which most of it would be empty


def suits_convolution(form: Form) -> bool:
    """Tensor cores may compute it, and gain by it."""
    product = ConvolutionProduct(form)
    if _suits_stages(form, product):
        return fills_products(form, product)
    is_long = prod(product.steps) >= LONG
    return not product.batches and fills_products(form, product, 1 if is_long else FEWEST_ROWS)


def convolution_kernel(form: Form) -> KernelSource:
    """Return the kernel of a convolution and of the elementwise work on both sides of it."""
    product = ConvolutionProduct(form)
    if _suits_stages(form, product):
        cut = tap_rows(form.instr, form.shape(0), form.shape(1))
        found = (cut and gradient_kernel(form, cut)) or image_kernel(form)
        return found or staged_kernel(form)
    return tensor_kernel([(form, product)])


def _suits_stages(form: Form, product: ConvolutionProduct) -> bool:
    """Tell whether operands are staged: those of large convolutions, and of all groups that may."""
    steps, smaller = prod(product.steps), min(side.extent for side in product.sides)
    is_large = 2 * written(form.instr).elements * steps >= FEWEST_FLOPS
    return smaller >= FEWEST and steps >= FEWEST_STEPS and (is_large or bool(product.batches))
