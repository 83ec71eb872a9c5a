"""Keys that attention may pass by: those that no row of a warp sees, whose weights are 0.

A masked score weighs nothing where the value in its place is far below the largest score so far.
Values behind such keys are looked at all the same: what is no finite number makes a NaN of 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.hlo import DType
from hlo2graph.ops.device import Expr

ALL = "0xffffffffu"  # lanes of a warp
HIGH = "0x80008000u"  # bits, which are set of a number that is not finite in either half of a word
FIELDS = {
    "f32": ("0x7f800000u", "0x00800000u"),
    "bf16": ("0x7f807f80u", "0x00800080u"),
    "f16": ("0x7c007c00u", "0x04000400u"),
}


def hidden_from(seen: Sequence[Expr], value: Expr, largest: Sequence[Expr]) -> Expr:
    """Return the test that holds for a warp whose rows all see no key, and give none a weight.

    seen: whether each of a thread's rows sees one; value: what is there instead of their scores.
    """
    weighs = (f"hlo::near_exponential(hlo::subtract({value}, {most})) != 0.0f" for most in largest)
    return f"!__ballot_sync({ALL}, {' || '.join([*seen, *weighs])})"


def note_odd(emit: ElementEmitter, dtype: DType, array: str, counts: tuple[int, int]) -> None:
    """Write that `odd` gets the HIGH bits of words, in an array so large, that hold no numbers."""
    exponents, least = FIELDS[dtype.name]
    for name, count in zip(("k", "r"), counts, strict=True):
        emit.line("#pragma unroll")
        emit.line(f"for (int {name} = 0; {name} < {count}; ++{name})")
    emit.line(f"  odd |= ({array}[k][r] & {exponents}) + {least};")


def is_odd() -> Expr:
    """Return the test that holds if any thread of a warp has noted such words."""
    return f"__ballot_sync({ALL}, odd & {HIGH})"
