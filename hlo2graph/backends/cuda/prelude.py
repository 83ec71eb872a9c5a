"""The headers that kernels include, and how few of them one text takes.

To parse all of them takes the compiler longer than many a kernel does.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from hlo2graph.backends.cuda.source import HEADER

_OF_ROUTINES = (
    "digits",
    "factor",
    "fft",
    "linear_algebra",
    "panels",
    "search",
    "sort",
    "spectra",
    "top",
)
_ROUTINES = frozenset(f"{name}.cuh" for name in _OF_ROUTINES)
_INCLUDED = re.compile(r'^#include "(\w+\.cuh)"', re.MULTILINE)
_USED = re.compile(r"\bhlo::(\w+)")
_DECLARED = tuple(
    re.compile(pattern)  # apart, each with a beginning of its own: so they are found in no time
    for pattern in (
        r"__device__[^(;{]*?\b(\w+)\s*\(",  # a function
        r"struct (\w+)[^;(){]*\{",
        r"\nenum class (\w+)[^;(){]*\{",
        r"\ntypedef [^;]*\b(\w+);",
        r"\nHLO_\w+\((\w+)",  # what macros declare,
        r" X\((\w+),",  # of the lists that they are given too
    )
)


@cache
def headers() -> tuple[tuple[str, str], ...]:
    """Return the names and texts of all headers."""
    folder = files("hlo2graph.backends.cuda") / "include"
    found = ((f.name, f.read_text()) for f in folder.iterdir() if f.name.endswith(".cuh"))
    return tuple(sorted(found))


def headers_for(text: str) -> tuple[tuple[str, str], ...]:
    """Return the headers, of which HEADER includes those alone that declare what `text` names.

    Of several that declare a name, as complex.cuh overloads `add`, that is the first: a kernel of
    complex numbers names their type too.
    """
    used = {_owners()[name] for name in _USED.findall(text) if name in _owners()}
    order = _INCLUDED.findall(dict(headers())[HEADER])
    least = "".join(f'#include "{name}"\n' for name in order if name in used)
    return tuple((name, least if name == HEADER else held) for name, held in headers())


def takes_routine(text: str) -> bool:
    """Tell whether a kernel is a routine of a header, whose length its own text does not show."""
    return any(_owners().get(name) in _ROUTINES for name in _USED.findall(text))


def declared(header: str) -> set[str]:
    """Return the names that the text of a header declares."""
    return {name for pattern in _DECLARED for name in pattern.findall(header)}


@cache
def _owners() -> dict[str, str]:
    """Return the header of each name that those in HEADER declare."""
    held, found = dict(headers()), dict[str, str]()
    for header in _INCLUDED.findall(held[HEADER]):
        for name in declared(held[header]):
            found.setdefault(name, header)
    return found
