"""Choose how far to reuse bytes: not at all, so often, or just enough to fit a budget."""

from __future__ import annotations

from collections.abc import Iterator

from hlo2graph.errors import InputError
from hlo2graph.program.buffers.model import Model, Temp, peak
from hlo2graph.program.buffers.pack import pack
from hlo2graph.program.buffers.place import Placement, Policy, place

UNLIMITED = -1
_SHARES = (1.0, 0.875, 0.75, 0.5, 0.25, 0.0)  # of the budget, to grow to before any reuse
_FEW = (1, 3)
_ENOUGH = 2  # placements that fit, of which the better one is taken
_NAMED = 4  # buffers named where a budget cannot be met


def choose(model: Model, memory_budget: int | None, max_buffer_reuse: int) -> Placement:
    """Return the placement that adds the least to the longest path, as far as the two allow.

    memory_budget: bytes the arena may take; a budget allows any reuse that `max_buffer_reuse`
        does not limit.
    Raises InputError where the budget is too small.
    """
    free = place(model, Policy())
    if free.size > peak(model)[0]:
        packed = _packed(model)
        if model.serial or not packed.reused:  # as where each thunk waits for the one before it
            free = min(free, packed, key=_by_size)
    if memory_budget is None:
        if max_buffer_reuse == 0 or model.serial:
            return free
        return min(free, *_reusing(model, max_buffer_reuse, [0]), key=_by_size)
    if free.size <= memory_budget:
        return free
    return _fitting(model, free, memory_budget, max_buffer_reuse or UNLIMITED)


def _fitting(model: Model, free: Placement, budget: int, reuse: int) -> Placement:
    hopeless = model.serial or budget < peak(model)[0]
    limits = [0] if hopeless else [int(budget * share) for share in _SHARES]
    least = free.size
    fitting: list[Placement] = []
    for placement in _reusing(model, reuse, limits):
        least = min(least, placement.size)
        if placement.size <= budget:
            fitting.append(placement)
        if len(fitting) == _ENOUGH:
            break
    if not fitting:
        raise _too_small(model, budget, least)
    return min(fitting, key=_by_path)


def _reusing(model: Model, reuse: int, limits: list[int]) -> Iterator[Placement]:
    """Yield placements, roughly those that reuse least first."""
    for limit in limits:
        yield place(model, Policy(reuse, limit))
    if reuse == UNLIMITED:
        # Few handovers often fragment the arena less than as many as there can be.
        for few in _FEW:
            yield place(model, Policy(few))
        yield _packed(model)


def _packed(model: Model) -> Placement:
    return place(model, Policy(UNLIMITED, offsets=pack(model)))


def _by_size(placement: Placement) -> tuple[int, int, int]:
    return placement.size, placement.path, len(placement.reused)


def _by_path(placement: Placement) -> tuple[int, int, int]:
    return placement.path, len(placement.reused), placement.size


def _too_small(model: Model, budget: int, least: int) -> InputError:
    bound, held = peak(model)
    largest = sorted(held, key=lambda temp: -temp.size)[:_NAMED]
    names = ", ".join(f"{_origin(model, temp)} ({temp.buffer.size:,} bytes)" for temp in largest)
    more = f" and {len(held) - _NAMED} more" if len(held) > _NAMED else ""
    return InputError(
        f"a memory budget of {budget:,} bytes cannot be met: the least that the temporaries can "
        f"be made to fit in is {least:,} bytes; {bound:,} bytes are alive at once, held by "
        f"{names}{more}"
    )


def _origin(model: Model, temp: Temp) -> str:
    return model.uses.values[temp.first].origin
