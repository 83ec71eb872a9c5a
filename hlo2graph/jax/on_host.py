"""Calls on the host: JAX's arrays on the CPU are read where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding
from jaxlib import _jax

from hlo2graph.backends.host import HostExecutable
from hlo2graph.jax.leaves import ARRAY, finished, is_key
from hlo2graph.jax.lowering import Lowered


class HostCalls:
    """Calls of a host executable, with arrays of JAX's as leaves."""

    def __init__(self, executable: HostExecutable, lowered: Lowered) -> None:
        self.executable = executable
        self._constants = [
            np.asarray(value) if type(value) is ARRAY else np.array(value)  # may be written later
            for value in lowered.constants
        ]
        self._devices = jax.devices("cpu")[:1]
        self._sharding = SingleDeviceSharding(self._devices[0])
        self._lowered = lowered
        self._last: tuple[Sequence[Any], dict[int, Any]] = ((), {})

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Run once; return the result leaves."""
        held, known = self._last  # `held` keeps the ids in `known` those of the same arrays
        arrays = [
            known[id(leaf)] if id(leaf) in known and not leaf.is_deleted() else np.asarray(leaf)
            for leaf in leaves
        ]
        if len(held) != len(leaves) or not all(map(is_, held, leaves)):
            seen = zip(leaves, arrays, strict=True)
            known = {id(leaf): array for leaf, array in seen if type(leaf) is ARRAY}
            self._last = tuple(leaves), known
        found = self.executable.run_fitting([*self._constants, *arrays])
        results = [self._put(*pair) for pair in zip(found, self._lowered.results, strict=True)]
        for position in self._lowered.donated:
            if type(leaves[position]) is ARRAY:
                leaves[position].delete()
        return results

    def _put(self, array: Any, aval: Any) -> Any:
        """Return a result as an array of JAX's, which takes its memory where that is aligned."""
        if is_key(aval):
            return finished(self._put(array, jax.typeof(array)), aval)
        return _jax.batched_device_put(aval, self._sharding, [array], self._devices, False)
