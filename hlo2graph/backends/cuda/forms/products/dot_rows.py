"""The dot form for few results: the threads of a team sum one result's products together.

Each thread takes the products at its stride along the contracting dimensions; the sums of the
threads are folded in pairs. The order is fixed, so that equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo2graph.backends.cuda.element import ElementEmitter
from hlo2graph.backends.cuda.forms.form import Form
from hlo2graph.backends.cuda.forms.products.results import Results
from hlo2graph.backends.cuda.source import KernelSource, blocks_for
from hlo2graph.backends.cuda.team import UNROLL, Part, Team
from hlo2graph.ops.device import Expr
from hlo2graph.ops.device_products import DotParts, narrowed
from hlo2graph.ops.expect import written

FEWEST_STEPS = 32
MOST_RESULTS = 1 << 14  # above this a thread a result, or a tile a block, fills the device
LONG_STEPS = 256  # below this a tile, whose operands are read once, is soon done with few blocks
FEW_RESULTS = 1 << 10


def suits_teams(form: Form) -> bool:
    """There are few results, each of many products; so of all that it goes with."""
    return all(map(_has_few_results, form.each))


def _has_few_results(form: Form) -> bool:
    shape = written(form.instr)
    steps = prod(DotParts(form.emitter().operands_of(form.instr), form.instr).steps)
    most = MOST_RESULTS if steps >= LONG_STEPS else FEW_RESULTS
    return steps >= FEWEST_STEPS and 0 < shape.elements <= most


def dot_rows_kernel(form: Form) -> KernelSource:
    """Return the kernel of a dot, and of the elementwise work behind it."""
    emit, shape = form.emitter(), written(form.instr)
    dots = [(each, DotParts(emit.operands_of(each.instr), each.instr)) for each in form.each]
    team = Team.for_rows(shape.elements, max(prod(parts.steps) for _, parts in dots))
    team.place(emit)
    totals = [emit.variable(parts.wide, "{}") for _, parts in dots]
    with emit.block(f"if (result < {shape.elements})"):
        for (each, parts), total in zip(dots, totals, strict=True):
            _sum(each, emit, parts, team, total)

    def fold(into: Sequence[Expr], values: Sequence[Expr]) -> None:
        emit.line(f"{into[0]} = hlo::add({into[0]}, {values[0]});")

    held = [Part([dots[0][1].wide], [total], fold) for total in totals]
    results = Results(form, emit)
    team.combine(emit, held, all_threads=False)
    with emit.block(f"if (slice == 0 && result < {shape.elements})"):
        index = emit.element_at("result", shape)
        for (each, parts), total in zip(dots, totals, strict=True):
            value = narrowed(emit.operands_of(each.instr), total, parts.wide, shape.dtype)
            emit.assume(each.instr.name, index, (value,))
        for _, store in results.at(index):
            emit.line(store)
    blocks, _, _ = blocks_for(shape.elements, team.lanes)
    results.beside(blocks, team.threads)
    return form.source(emit, blocks, team.threads)


def _sum(form: Form, emit: ElementEmitter, parts: DotParts, team: Team, total: Expr) -> None:
    """Add every so many products to this thread's total."""
    index = emit.element_at("result", written(form.instr))
    step, steps = emit.fresh("n"), prod(parts.steps)
    emit.line(f"#pragma unroll {UNROLL}")
    head = f"{emit.index_type} {step} = slice; {step} < {steps}; {step} += {team.slices}"
    with emit.block(f"for ({head})"):
        along = list(emit.split(step, parts.steps))
        parts.add(emit.operands_of(form.instr), total, parts.places(index, along))
