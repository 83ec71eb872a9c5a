"""What CUDA cannot run, found for the whole plan before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlo2graph.backends.cuda.element import STRUCTURE
from hlo2graph.backends.cuda.forms import own_root
from hlo2graph.backends.cuda.forms.sort import too_wide
from hlo2graph.backends.cuda.kernels import walk
from hlo2graph.errors import Note, Span, UnsupportedError
from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops import OPS
from hlo2graph.ops.device import NoDevice, OwnKernel, device_of
from hlo2graph.ops.evaluate import unsupported
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Collective, Kernel, Library

EMITTED = STRUCTURE | {"after-all"}  # a token has no bytes


def check_support(plan: Plan) -> None:
    """Raise one UnsupportedError for all that cannot run: each kind, how often, where, why."""
    found: dict[tuple[str, str], list[Span | None]] = {}
    known: dict[str, list[tuple[Instruction, str]]] = {}
    for thunk in walk(plan.body):
        if not isinstance(thunk, Kernel | Library | Collective):
            continue
        name = thunk.computation
        if name not in known:
            computation = plan.computations[name]
            own = own_root(computation)
            refused = unsupported(plan.computations, name)
            named = {id(instr) for instr, _ in refused}
            device = _refused(plan.computations, computation, own)
            known[name] = [*refused, *(pair for pair in device if id(pair[0]) not in named)]
        for instr, reason in known[name]:
            found.setdefault((_kind(instr), reason), []).append(instr.span or thunk.span)
    if not found:
        return
    notes = tuple(
        Note(f"{kind}{_times(len(places))}: {reason}", next((p for p in places if p), None))
        for (kind, reason), places in found.items()
    )
    what = "an operation" if len(found) == 1 else f"{len(found)} kinds of operation"
    raise UnsupportedError(f"cuda cannot run {what} of {plan.name}", None, notes)


def _refused(
    computations: Mapping[str, Computation], computation: Computation, own: Instruction | None
) -> Iterator[tuple[Instruction, str]]:
    """Yield the instructions of a computation, and of those it calls, that have no device code.

    `own` is the one that has the kernel to itself.
    """
    for instr in computation.instructions:
        if instr.opcode not in EMITTED and (reason := device_reason(instr, own)):
            yield instr, reason
            continue
        for called in instr.called():
            yield from _refused(computations, computations[called], None)


def device_reason(instr: Instruction, own: Instruction | None) -> str | None:
    """Return why `instr` cannot be part of a kernel that belongs to `own`; None where it can."""
    match device_of(OPS[instr.opcode].device, instr):
        case NoDevice(reason):
            return reason
        case OwnKernel(form) if instr is not own:
            return f"needs a kernel of its own, for {form}, and is in the middle of another"
        case OwnKernel("sort") if too_wide(tuple(instr.shape.leaves())):
            return "sorts more operands than fit into shared memory"
        case _:
            return None


def _kind(instr: Instruction) -> str:
    target = instr.attrs.get("custom_call_target")
    return f'{instr.opcode} "{target}"' if isinstance(target, str) else instr.opcode


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""
