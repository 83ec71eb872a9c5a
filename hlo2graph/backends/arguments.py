"""Checking the arrays that a caller gives: their number, element types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from hlo2graph.errors import InputError
from hlo2graph.hlo import Shape
from hlo2graph.ops.spec import Array

FOREIGN = (
    *(ArithmeticError, AttributeError, BufferError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)
"""What arrays of other libraries raise where they do not give what they hold."""


class Leaf(Protocol):
    """A parameter leaf: a Port before buffers are assigned, a Bound after."""

    @property
    def name(self) -> str:
        """How users call it."""
        ...

    @property
    def shape(self) -> Shape:
        """What it must be."""
        ...


def check_arguments(args: Sequence[object], leaves: Sequence[Leaf]) -> tuple[Array, ...]:
    """Return `args` as NumPy arrays of exactly the leaves' element types and shapes.

    An array must have the very dtype; a Python number or list is taken where it converts without
    loss. Raises InputError naming the parameter, what it takes and what came.
    """
    if len(args) != len(leaves):
        names = ", ".join(leaf.name for leaf in leaves) or "none"
        raise InputError(
            f"the program takes {len(leaves)} input{'s' * (len(leaves) != 1)} ({names}), "
            f"got {len(args)}"
        )
    return tuple(
        check_argument(arg, leaf, position)
        for position, (arg, leaf) in enumerate(zip(args, leaves, strict=True))
    )


def check_argument(arg: object, leaf: Leaf, position: int) -> Array:
    """Return `arg` as an array of the leaf's element type and shape; see check_arguments."""
    shape = leaf.shape
    what = f"input {position} ({leaf.name}) is {shape.without_layout_text()}"
    array = _array(arg, shape.dtype.numpy, what)
    if array.dtype != shape.dtype.numpy:
        order = "" if array.dtype.isnative else " in the other byte order"
        raise InputError(
            f"{what}, so it takes dtype {shape.dtype.numpy.name}, got {array.dtype.name}{order}"
        )
    if array.shape != shape.dims:
        raise InputError(f"{what}, so it takes shape {shape.dims}, got {array.shape}")
    return array


def _array(arg: object, dtype: np.dtype[Any], what: str) -> Array:
    """Make an array of `arg`; only Python numbers and lists may change their dtype."""
    if isinstance(arg, np.ma.MaskedArray):
        raise InputError(f"{what}, and a masked array has no values where its mask is set")
    if hasattr(arg, "__array__"):
        try:
            return np.asarray(arg)
        except FOREIGN as error:
            kind = type(arg).__name__
            raise InputError(f"{what}, and {kind} gives no array: {error}") from None
    try:
        given = np.asarray(arg)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{what}, and {type(arg).__name__} makes no array: {error}") from None
    if given.dtype.kind not in "biufc":
        raise InputError(f"{what}, and {type(arg).__name__} makes no array of numbers")
    if given.dtype.kind == "c" and dtype.kind != "c":
        raise InputError(f"{what}, got complex numbers")
    with np.errstate(all="ignore"):
        converted = given.astype(dtype)
        back = converted.astype(given.dtype)
    if not np.array_equal(back, given, equal_nan=given.dtype.kind in "fc"):
        raise InputError(
            f"{what}, which does not hold the given {given.dtype.name} values exactly; "
            f"give an array of dtype {dtype.name}"
        )
    return converted
