"""Finding a nested sequence by the name of the loop or conditional around it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from hlo2graph.errors import InputError, Note
from hlo2graph.program.text.numbering import Numbered


def find_sequence(numbered: Numbered, wanted: str) -> Numbered:
    """Return the sequence called `wanted`: `loop.2/body`, or `loop.2` for what it runs first.

    A loop's name alone stands for its body. Raises InputError where there is none.
    """
    known: dict[str, Numbered] = {}
    for name, label, inner in _sequences(numbered):
        known.setdefault(f"{name}/{label}", inner)
        if label in ("body", "branch_0"):
            known.setdefault(name, inner)
    if wanted in known:
        return known[wanted]
    close = get_close_matches(wanted, known, n=1)
    hint = f"perhaps {close[0]} was meant" if close else f"there are {', '.join(known) or 'none'}"
    raise InputError(f"there is no loop or conditional {wanted}", notes=(Note(hint),))


def _sequences(numbered: Numbered) -> Iterator[tuple[str, str, Numbered]]:
    for id, thunk in numbered:
        for label, inner in numbered.nested(id):
            yield thunk.name, label, inner
            yield from _sequences(inner)
