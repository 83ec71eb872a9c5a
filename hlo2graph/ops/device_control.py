"""Device rules of loops and conditionals of scalars, as a region that a kernel calls may hold them.

Those of arrays become thunks, wherever they stand but in a region.
"""

from __future__ import annotations

from hlo2graph.hlo import Instruction, Kind
from hlo2graph.ops.device import ByInstruction, DeviceRule, Element, Expr, Index, NoDevice


def loop(element: Element, instr: Instruction, _: Index) -> tuple[Expr, ...]:
    """Return what is left in locals for the state, which take the body's results together."""
    dtypes = [leaf.dtype for leaf in instr.shape.leaves()]
    inits = zip(dtypes, element.leaves(0), strict=True)
    state = [element.variable(dtype, value) for dtype, value in inits]
    with element.block("while (true)"):
        (goes_on,) = element.call(str(instr.attrs["condition"]), state)
        element.line(f"if (!{goes_on}) break;")
        made = zip(dtypes, element.call(str(instr.attrs["body"]), state), strict=True)
        after = [element.bind(dtype, value) for dtype, value in made]
        for held, value in zip(state, after, strict=True):
            element.line(f"{held} = {value};")
    return tuple(state)


def choice(element: Element, instr: Instruction, _: Index) -> tuple[Expr, ...]:
    """Return locals that the chosen branch has set: the last one, where the number fits none."""
    (chosen,) = element.leaves(0)
    results = [element.variable(leaf.dtype, "{}") for leaf in instr.shape.leaves()]
    branches = tuple(instr.called())
    is_first = chosen if "branch_computations" not in instr.attrs else f"{chosen} == 0"
    heads = [f"if ({is_first})", *(f"else if ({chosen} == {k})" for k in range(1, len(branches)))]
    heads[-1] = "else" if len(branches) > 1 else ""
    for number, (head, branch) in enumerate(zip(heads, branches, strict=True), 1):
        with element.block(head):
            made = element.call(branch, element.leaves(number))
            for held, value in zip(results, made, strict=True):
                element.line(f"{held} = {value};")
    return tuple(results)


def of_scalars(rule: DeviceRule) -> ByInstruction:
    """Return a device for which `rule` stands where everything is a scalar."""

    def choose(instr: Instruction) -> DeviceRule | NoDevice:
        numbers = all(
            leaf.dims == () and leaf.dtype.kind not in (Kind.TOKEN, Kind.OPAQUE)
            for leaf in instr.shape.leaves()
        )
        reason = f"a {instr.opcode} of more than scalars cannot stand in what a kernel calls"
        return rule if numbers else NoDevice(reason)

    return ByInstruction(choose)
