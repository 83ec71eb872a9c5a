"""Arguments that are part of the program: found by position and by name, as `jax.jit` does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

Positions = int | Sequence[int] | None
Names = str | Iterable[str] | None
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class StaticArguments:
    """Takes the static ones out of a call's arguments."""

    def __init__(self, f: Callable[..., Any], positions: Positions, names: Names) -> None:
        by_position = _parameters(f)
        wanted = [positions] if isinstance(positions, int) else list(positions or ())
        named = [names] if isinstance(names, str) else list(names or ())
        self._positions = set(wanted) | {by_position.index(n) for n in named if n in by_position}
        self._names = set(named) | {
            by_position[k] for k in wanted if -len(by_position) <= k < len(by_position)
        }

    def __bool__(self) -> bool:
        return bool(self._positions or self._names)

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], Hashable]:
        """Return the other arguments, and the static ones with their types.

        Raises:
            TypeError: one cannot be hashed.
        """
        at = {k % len(args) for k in self._positions if -len(args) <= k < len(args)}
        fixed = [(k, type(arg), arg) for k, arg in enumerate(args) if k in at]
        fixed_by_name = [(n, type(v), v) for n, v in sorted(kwargs.items()) if n in self._names]
        static = (*fixed, *fixed_by_name)
        hash(static)
        rest = {name: value for name, value in kwargs.items() if name not in self._names}
        return tuple(arg for k, arg in enumerate(args) if k not in at), rest, static


def _parameters(f: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters by position, where it tells them."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (ValueError, TypeError):
        return []
    return [p.name for p in parameters if p.kind in BY_POSITION]
