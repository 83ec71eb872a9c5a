"""What must fit in a thunk: sizes against the computation's shapes, counts, widths.

Each check raises VerifyError.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.errors import Note, Span, VerifyError
from hlo2graph.frontend.thunks.attributes import Attributes
from hlo2graph.hlo import Computation, Shape
from hlo2graph.program.thunks import Slice


@dataclass(frozen=True, slots=True)
class Surface:
    """A computation seen from outside: its parameters' leaves and its result's, each named."""

    computation: Computation
    parameters: tuple[tuple[str, Shape], ...]
    results: tuple[tuple[str, Shape], ...]


def surface(computation: Computation) -> Surface:
    """Return what a kernel that runs `computation` reads and writes."""
    parameters = tuple((p.name, leaf) for p in computation.parameters for leaf in p.shape.leaves())
    root = computation.result
    return Surface(computation, parameters, tuple((root.name, s) for s in root.shape.leaves()))


def check_call(
    called: Surface, reads: tuple[Slice, ...], writes: tuple[Slice, ...], held: Attributes
) -> None:
    """Parameter k of the computation is reads[k], result leaf k is writes[k]."""
    name = called.computation.name
    for key, slices, leaves in (
        ("reads", reads, called.parameters),
        ("writes", writes, called.results),
    ):
        note = Note(f"{name} is here", called.computation.span)
        if len(slices) != len(leaves):
            does = "takes" if key == "reads" else "gives"
            message = f"{key} has {len(slices)} entries, but {name} {does} {len(leaves)}"
            raise VerifyError(message, held.at(key), (note,))
        for position, (slice_, (leaf, shape)) in enumerate(zip(slices, leaves, strict=True)):
            if slice_.size != shape.size:
                message = (
                    f"{key}[{position}] has {slice_.size} bytes, "
                    f"but {leaf} is {shape}, {shape.size} bytes"
                )
                raise VerifyError(message, held.at(key), (note,))


def check_copy(source: Slice, target: Slice, span: Span) -> None:
    """Both ends of a copy have one size."""
    if source.size != target.size:
        message = f"a copy's ends have one size, not {source.size} and {target.size} bytes"
        raise VerifyError(message, span)


def check_fill(target: Slice, pattern: bytes, span: Span) -> None:
    """A fill's pattern is one element, and the target holds a whole number of them."""
    if len(pattern) not in (1, 2, 4, 8, 16):
        message = f"a fill's pattern is 1, 2, 4, 8 or 16 bytes, not {len(pattern)}"
        raise VerifyError(message, span)
    if target.size % len(pattern):
        message = f"{target} holds no whole number of {len(pattern)}-byte patterns"
        raise VerifyError(message, span)


def check_predicate(predicate: Slice, span: Span) -> None:
    """A loop's predicate is a pred[]."""
    if predicate.size != 1:
        raise VerifyError(f"a predicate is a pred[], 1 byte, not {predicate.size}", span)


def check_selector(selector: Slice, branches: int, span: Span) -> None:
    """A pred[] selects between two branches, an s32[] between any number."""
    if selector.size not in (1, 4):
        message = f"a selector is a pred[] or an s32[], 1 or 4 bytes, not {selector.size}"
        raise VerifyError(message, span)
    if selector.size == 1 and branches != 2:
        raise VerifyError(f"a pred[] selects one of two branches, not of {branches}", span)
    if not branches:
        raise VerifyError("a conditional has branches, branch_0 and so on", span)


def check_results(left: tuple[Slice, ...], results: tuple[Slice, ...], span: Span) -> None:
    """A branch leaves as many results as its conditional has, of the same sizes."""
    if [s.size for s in left] != [s.size for s in results]:
        sizes = ", ".join(str(s.size) for s in results)
        raise VerifyError(f"a branch's results have the conditional's sizes: {sizes}", span)
