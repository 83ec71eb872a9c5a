"""When a node of a plan ran, whichever backend ran it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """When one node ran: rows of begin and end in nanoseconds, the latest launches in order.

    `launches` counts all of them.
    """

    name: str
    launches: int
    times: np.ndarray[Any, Any]
