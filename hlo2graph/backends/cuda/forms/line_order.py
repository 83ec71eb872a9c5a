"""The order of a kernel's lines: what is done for neighbouring elements is put together.

The emitter writes all of one element, then all of the next. The lines moved here are constants in
the outermost block of those given. A load may pass a store: a kernel reads what it was given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set

from hlo2graph.backends.cuda.element import ElementEmitter

_DECLARED = re.compile(r" *const (?:[\w:]+|long long) (?P<name>\w+) = (?P<value>.*);$")
_LOAD = re.compile(
    r" *const (?:(?:int|long long) (?P<index>i\d+) = .|"
    r"[\w:]+ (?P<name>\w+) = (?:hlo::load\()?(?:p\d|kept\b))"
)
_NARROW_LOAD = re.compile(
    r"(?P<margin> *)const float (?P<name>\w+) = hlo::load\((?P<place>(?:p\d+|kept)\[[^\]]*\])\);$"
)
_DIVIDED = re.compile(
    r"(?P<margin> *)const (?P<type>float|hlo::f32) (?P<name>\w+) = "
    r"hlo::divide\((?P<dividend>\w+), (?P<divisor>\w+)\);$"
)
_NARROWED = re.compile(r" *const float \w+ = hlo::convert<hlo::(?!f32)\w+>\((?P<value>\w+)\);$")
_ASSIGNED = re.compile(r"(\w+)(?:\[\w*\])? = ")
_NAME = re.compile(r"\b[a-z]+\d+\w*\b")


def loads_first(emit: ElementEmitter, start: int) -> None:
    """Move the loads among the lines from number `start` on before all else that can wait.

    So loads of neighbouring elements stand together, for the compiler to make one access of them,
    and all are under way before the first is used. Narrow floats are widened behind the last.
    """
    lines = emit.lines[start:]
    loads = {m["index"] or m["name"] for m in map(_LOAD.match, lines) if m}
    early, late = parted(lines, loads)
    narrow = [m for m in map(_NARROW_LOAD.match, early) if m]
    raw = {m[0]: f"{m['margin']}const auto {m['name']}_raw = {m['place']};" for m in narrow}
    widened = [
        f"{m['margin']}const float {m['name']} = hlo::widened({m['name']}_raw);" for m in narrow
    ]
    emit.lines[start:] = [*(raw.get(line, line) for line in early), *widened, *late]


def divide_together(emit: ElementEmitter, start: int) -> None:
    """Make one test of those of the quotients that have one divisor, in the lines from `start` on.

    A quotient of rare operands goes another way, and a branch for each takes longer than itself.
    Those that are rounded to 16 bits or less are products with the divisor's reciprocal.
    """
    lines = emit.lines[start:]
    found = [m for m in map(_DIVIDED.match, lines) if m]
    narrow = _rounded_alone(emit, lines, {m["name"] for m in found})
    for divisor, count in Counter(m["divisor"] for m in found).items():
        if count > 1:
            held = {m["name"] for m in found if m["divisor"] == divisor}
            others = {m["name"] for m in map(_DECLARED.match, lines) if m} - held
            # What waits for no quotient, the quotients, what waits for these.
            before, rest = parted(lines, others)
            quotients, after = parted(rest, held)
            lines = [*before, *_together(quotients, is_near=held <= narrow), *after]
    emit.lines[start:] = lines


def _rounded_alone(emit: ElementEmitter, lines: Sequence[str], names: Set[str]) -> Set[str]:
    """Return those of the names that are of a narrow type, or only converted to one.

    Not those that are converted to the type that they have: there passes.round_compared asks for
    what a quotient is in any other kernel.
    """
    uses = Counter(name for line in lines for name in _NAME.findall(line))
    converted = {m["value"] for m in map(_NARROWED.match, lines) if m and uses[m["value"]] == 2}
    return {name for name in names if (name in converted) != emit.is_narrow(name)}


def _together(lines: Sequence[str], *, is_near: bool) -> list[str]:
    """Return quotients of one divisor, behind one test of all."""
    quotients = [m for m in map(_DIVIDED.match, lines) if m]
    if len(quotients) < 2:
        return list(lines)
    margin, divisor = quotients[0]["margin"], quotients[0]["divisor"]
    found = ", ".join(f"{m['dividend']}, {m['name']}" for m in quotients)
    function = "near_quotient" if is_near else "quotient"
    usual = [
        f"{margin}{m['type']} {m['name']} = hlo::{function}({m['dividend']}, {divisor});"
        for m in quotients
    ]
    rare = [
        f"{margin}  {m['name']} = hlo::divide_any({m['dividend']}, {divisor});" for m in quotients
    ]
    test = f"hlo::are_usual({divisor}, hlo::least_size({found}))"
    if is_near:
        test = f"hlo::has_reciprocal({divisor})"
    return [*usual, f"{margin}if (!{test}) {{", *rare, f"{margin}}}"]


def parted(lines: Sequence[str], names: Set[str]) -> tuple[list[str], list[str]]:
    """Return those of the constants `names` that wait for nothing else, and all other lines."""
    margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    early: list[str] = []
    late: list[str] = []
    waiting: set[str] = set()  # names that the late lines give values to
    for line in lines:
        found = _DECLARED.match(line)
        moves = found is not None and found["name"] in names
        at_top = len(line) - len(line.lstrip()) == margin
        if moves and at_top and found and waiting.isdisjoint(_NAME.findall(found["value"])):
            early.append(line)
        else:
            late.append(line)
            waiting.update(_ASSIGNED.findall(line))
    return early, late
