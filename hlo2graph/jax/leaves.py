"""Single leaves of pytrees: what they are to JAX, and the arrays that stand for them.

A PRNG key is an array of its words to HLO, and a Python number an array of no dimensions.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax._src.lax.lax import _convert_element_type
from jax._src.random.prng import PRNGKeyArray
from jaxlib import _jax

ARRAY = _jax.ArrayImpl
PLAIN = frozenset({ARRAY})


def is_tracer(leaf: object) -> bool:
    """Tell whether JAX is transforming the function that `leaf` is an argument of."""
    return isinstance(leaf, jax.core.Tracer)


def is_key(aval: Any) -> bool:
    """Tell whether an abstract value is one of typed PRNG keys."""
    return bool(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key))


def kind_of(leaf: Any) -> Any:
    """Return what a program is compiled for: a leaf's abstract value, for PRNG keys in two parts.

    Raises:
        TypeError: it is nothing that JAX computes with.
    """
    if type(leaf) is ARRAY:
        return leaf.aval
    if type(leaf) is PRNGKeyArray:
        return leaf._base_array.aval, leaf._impl  # its own `aval` is made anew each time
    return jax.typeof(leaf)


def place_of(leaf: Any) -> Any:
    """Return the device of an array of JAX's, keys included, or its sharding; None for others.

    A device is much faster to look up than the sharding on it alone.
    """
    if type(leaf) is PRNGKeyArray:
        leaf = leaf._base_array
    sharding = getattr(leaf, "sharding", None)
    return getattr(sharding, "_device", sharding)


def devices_of(place: Any) -> set[Any]:
    """Return the devices of what `place_of` returned."""
    return set() if place is None else getattr(place, "device_set", {place})


def plain(leaf: Any, aval: Any, device: Any) -> Any:
    """Return a leaf as an array of JAX's on `device`, where it is one already, or of NumPy's."""
    if type(leaf) is PRNGKeyArray:
        leaf = leaf._base_array  # jax.random.key_data would dispatch a program
        return leaf if place_of(leaf) == device else np.asarray(leaf)
    if type(leaf) is ARRAY and place_of(leaf) == device:
        return leaf
    return np.asarray(leaf, aval.dtype)


def finished(array: Any, aval: Any) -> Any:
    """Return an array as a result of the type `aval`: a PRNG key, or weakly typed."""
    if is_key(aval):
        return PRNGKeyArray(aval.dtype._impl, array)
    return _convert_element_type(array, weak_type=True) if aval.weak_type else array
