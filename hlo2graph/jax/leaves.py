"""Single leaves of pytrees: what they are to JAX, and the arrays that stand for them.

A PRNG key is an array of its words to HLO, and a Python number an array of no dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src.lax.lax import _convert_element_type
from jax._src.random.prng import PRNGKeyArray
from jaxlib import _jax

ARRAY = _jax.ArrayImpl
PLAIN = {ARRAY}


def is_tracer(leaf: object) -> bool:
    """Tell whether JAX is transforming the function that `leaf` is an argument of."""
    return isinstance(leaf, jax.core.Tracer)


def is_key(aval: Any) -> bool:
    """Tell whether an abstract value is one of typed PRNG keys."""
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def types_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return the abstract values of leaves of any kind.

    Raises:
        TypeError: one is nothing that JAX computes with.
    """
    return tuple([jax.typeof(leaf) for leaf in leaves])


def place_of(leaf: Any) -> Any:
    """Return the device of an array of JAX's, keys included, or its sharding; None for others.

    A device is much faster to look up than the sharding on it alone.
    """
    sharding = getattr(leaf, "sharding", None)
    return getattr(sharding, "_device", sharding)


def devices_of(place: Any) -> set[Any]:
    """Return the devices of what `place_of` returned."""
    return set() if place is None else getattr(place, "device_set", {place})


def plain(leaf: Any, aval: Any, device: Any) -> Any:
    """Return a leaf as an array of JAX's on `device`, where it is one already, or of NumPy's."""
    if is_key(aval):
        leaf = leaf._base_array  # jax.random.key_data would dispatch a program
    if type(leaf) is ARRAY and leaf.sharding.device_set == {device}:
        return leaf
    return np.asarray(leaf, None if is_key(aval) else aval.dtype)


def finished(array: Any, aval: Any) -> Any:
    """Return an array as a result of the type `aval`: a PRNG key, or weakly typed."""
    if is_key(aval):
        return PRNGKeyArray(aval.dtype._impl, array)
    return _convert_element_type(array, weak_type=True) if aval.weak_type else array
