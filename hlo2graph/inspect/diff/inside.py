"""What is different inside two thunks that stand for each other: the instructions, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from hlo2graph.hlo import Computation, Instruction
from hlo2graph.hlo.literal_text import format_literal
from hlo2graph.hlo.printer import format_attribute
from hlo2graph.inspect.diff.likeness import SAYS_NOTHING
from hlo2graph.program.thunks import Collective, Copy, Fill, Kernel, Library, Slice, Thunk, While

MOST_NAMED = 4  # instructions of each side
WIDEST = 40  # characters of a constant
Computations = Mapping[str, Computation]


def inside(
    old: Thunk[Slice], new: Thunk[Slice], before: Computations, after: Computations
) -> tuple[str, ...]:
    """Return what went and what came, a phrase each; nothing where there is no telling."""
    match old, new:
        case ((Kernel() | Library() | Collective()), (Kernel() | Library() | Collective())):
            return _instructions(
                Counter(_within(old.computation, before)), Counter(_within(new.computation, after))
            )
        case ((Copy() | Fill()), (Copy() | Fill())) if old.target.size != new.target.size:
            return (f"{new.target.size:,} bytes, was {old.target.size:,}",)
        case Fill(), Fill():
            return (f"of {new.pattern.hex()}, was {old.pattern.hex()}",)
        case While(), While() if old.trip_count != new.trip_count:
            return (f"{_rounds(new)}, was {_rounds(old)}",)
        case _:
            return ()


def _instructions(old: Counter[str], new: Counter[str]) -> tuple[str, ...]:
    gone, come = old - new, new - old
    if not gone and not come:
        return ("the same instructions of other operands",)
    return (*_counted("without", gone), *_counted("with", come))


def _counted(word: str, held: Counter[str]) -> Iterator[str]:
    """Yield one phrase that lists them, if there are any."""
    if not held:
        return
    named = [text if count == 1 else f"{count} x {text}" for text, count in held.items()]
    more = len(named) - MOST_NAMED
    yield f"{word} {', '.join(named[:MOST_NAMED])}" + (f" and {more} more" if more > 0 else "")


def _within(name: str, computations: Computations) -> Iterable[str]:
    """Yield the instructions of a computation and of those that it calls, but for parameters."""
    for instruction in computations[name].instructions:
        if instruction.opcode != "parameter":
            yield _text(instruction)
        for called in instruction.called():
            yield from _within(called, computations)


def _text(instruction: Instruction) -> str:
    payload, value = instruction.payload, ""
    if payload is not None and not isinstance(payload, int):
        value = " " + format_literal(payload)
        value = value if len(value) <= WIDEST else f"{value[:WIDEST]}..."
    attrs = "".join(
        f" {name}={format_attribute(name, held)}"
        for name, held in instruction.attrs.items()
        if name not in SAYS_NOTHING
    )
    return f"{instruction.opcode} {instruction.shape.without_layout_text()}{value}{attrs}"


def _rounds(loop: While[Slice]) -> str:
    return "unknown rounds" if loop.trip_count is None else f"{loop.trip_count:,} rounds"
