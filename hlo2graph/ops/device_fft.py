"""Device rule of fft where blocks have no form for it: its defining sum, one element at a time.

Twiddle factors come from exact fractions of a turn, so that the sum's own rounding is all there is.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import prod

from hlo2graph.hlo import DTYPES, Instruction
from hlo2graph.ops.device import Element, Expr, Index
from hlo2graph.ops.expect import integers, written

_COMPLEX_OF = {"f32": DTYPES["c64"], "f64": DTYPES["c128"]}


def fft(element: Element, instr: Instruction, index: Index) -> Expr:
    """Sum the operand's elements, each turned by its part of the phase."""
    source, target = element.shape(0), written(instr)
    lengths, kind = integers(instr, "fft_length"), str(instr.attrs["fft_type"])
    wide = _COMPLEX_OF.get(source.dtype.name, source.dtype)
    lead = len(index) - len(lengths)
    sign = "-1" if kind in ("FFT", "RFFT") else "1"
    total = element.variable(wide, "{}")
    with ExitStack() as opened:
        turn: Expr | None = None
        steps: list[Expr] = []
        for length, size, at in zip(lengths, source.dims[lead:], index[lead:], strict=True):
            step = element.fresh("n")
            opened.enter_context(element.block(f"for (int {step} = 0; {step} < {size}; ++{step})"))
            steps.append(step)
            phase = f"(hlo::s64){step} * {at} % {length}, {length}, {sign}"
            own = element.bind(wide, f"hlo::turned<hlo::{wide}>({phase})")
            turn = own if turn is None else element.bind(wide, f"hlo::multiply({turn}, {own})")
        value = element.operand(0, (*index[:lead], *steps))
        if kind == "RFFT":
            value = element.bind(wide, f"hlo::convert<hlo::{wide}>({value})")
        product = element.bind(wide, f"hlo::multiply({value}, {turn})")
        if kind == "IRFFT":  # all but the ends stand for their mirrored conjugates too
            ends = f"{steps[-1]} == 0 || 2 * {steps[-1]} == {lengths[-1]}"
            once = f"hlo::{wide}{{{product}.re, 0}}"
            twice = f"hlo::{wide}{{2 * {product}.re, 0}}"
            product = f"({ends} ? {once} : {twice})"
        element.line(f"{total} = hlo::add({total}, {product});")
    scale = "" if sign == "-1" else f" / {prod(lengths)}"
    if target.dtype.is_complex:
        parts = f"{total}.re{scale}, {total}.im{scale}"
        return element.bind(target.dtype, f"hlo::{target.dtype}{{{parts}}}")
    return element.bind(target.dtype, f"{total}.re{scale}")
