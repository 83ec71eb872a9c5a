"""A plan's thunks as steps: for the serial stream, for one graph, and for several with others."""

from __future__ import annotations

from dataclasses import dataclass

from hlo2graph.backends.cuda import builtin
from hlo2graph.backends.cuda.bind import Binder
from hlo2graph.backends.cuda.built import GraphMaker
from hlo2graph.backends.cuda.choices import Choices
from hlo2graph.backends.cuda.driver import Device
from hlo2graph.backends.cuda.partial.bind import Cut
from hlo2graph.backends.cuda.partial.cut import Cutter
from hlo2graph.backends.cuda.partial.policy import Policy
from hlo2graph.backends.cuda.ports import Port, ports_of
from hlo2graph.backends.cuda.steps import StepSequence
from hlo2graph.backends.cuda.temporaries.inside import Inside
from hlo2graph.backends.cuda.temporaries.layout import layout_of
from hlo2graph.backends.cuda.unroll import Unrolling, unrolled
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Sequence, Slice


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """What runs of a plan are made of.

    serial: its steps in program order. body: the plan as one graph has it, loops written out.
    maker: what builds graphs. cutter: which thunks these hold. unrolled: the loops that are written
    out in them, a phrase each.
    """

    serial: StepSequence
    body: Sequence[Slice]
    ports: tuple[Port, ...]
    maker: GraphMaker
    cutter: Cutter
    unrolled: tuple[str, ...]


def bind_plan(plan: Plan, binder: Binder, device: Device, choices: Choices) -> BoundPlan:
    """Bind `plan` as `choices` have it."""
    unrolling = Unrolling.of(choices.unroll_loops)
    serial = binder.bind(plan.body)
    ports = ports_of(plan, serial)
    body, written_out = unrolled(plan.body, unrolling, plan.schedule)
    cutter = Cutter(plan, Policy.of(choices.capture))
    cut = None if cutter.holds_all() else Cut(cutter, unrolling)
    layout = layout_of(plan)
    is_inside = choices.temporaries == "graph" and layout.size > 0
    functions = binder.functions
    maker = GraphMaker(
        *(device, serial, functions[builtin.NOTHING], ports, cut),
        inside=Inside(device, layout) if is_inside else None,
    )
    return BoundPlan(
        serial,
        body,
        ports,
        maker.bound_by(binder, body, functions),
        cutter,
        written_out if cut is None else cut.written_out(),
    )
