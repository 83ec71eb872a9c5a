"""What the fields of a class may hold, by its annotations: values that a file gave are held to it.

Objects were checked as they were made, so that a look at their class is enough; what is in tuples
and mappings is looked at one by one.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ForwardRef, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from hlo2graph.hlo import Literal
from hlo2graph.program.thunks import Slice

Fits: TypeAlias = Callable[[Any], bool]


@cache
def fits_of(of: type) -> Mapping[str, Fits]:
    """Return for each field of a dataclass what tells whether it may hold a value."""
    return {name: fits(hint) for name, hint in get_type_hints(of).items()}


def fits(hint: object) -> Fits:
    """Return what tells whether a value is as an annotation says."""
    if isinstance(hint, TypeVar):  # thunks of files are over slices
        hint = Slice
    if isinstance(hint, ForwardRef):
        assert hint.__forward_arg__ == "AnyLiteral"
        return _is_literal
    origin, args = get_origin(hint), get_args(hint)
    made = _MADE_OF.get(origin)
    return _plain(origin or hint) if made is None else made(args)


def _mapping(args: tuple[object, ...]) -> Fits:
    key, value = map(fits, args)
    return lambda held: type(held) is dict and all(key(k) and value(v) for k, v in held.items())


def _set(args: tuple[object, ...]) -> Fits:
    (member,) = map(fits, args)
    return lambda held: type(held) is frozenset and all(map(member, held))


def _is_literal(value: object) -> bool:
    return isinstance(value, Literal) or (type(value) is tuple and all(map(_is_literal, value)))


def _plain(of: Any) -> Fits:  # noqa: ANN401, a class
    if of is int:  # which a bool is none of here
        return lambda value: type(value) is int
    if of is float:
        return lambda value: type(value) is float
    return lambda value: isinstance(value, of)


def _tuple(args: tuple[object, ...]) -> Fits:
    if args[-1] is Ellipsis:
        member = fits(args[0])
        return lambda value: type(value) is tuple and all(map(member, value))
    members = tuple(map(fits, args))
    return lambda value: (
        type(value) is tuple
        and len(value) == len(members)
        and all(one(v) for one, v in zip(members, value, strict=True))
    )


def _any(args: tuple[object, ...]) -> Fits:
    several = tuple(map(fits, args))
    return lambda value: any(one(value) for one in several)


_MADE_OF: Mapping[object, Callable[[tuple[object, ...]], Fits]] = {
    tuple: _tuple,
    Mapping: _mapping,
    frozenset: _set,
    **dict.fromkeys((types.UnionType, Union), _any),
}
