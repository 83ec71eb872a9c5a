"""What CUDA cannot run, found for the whole plan before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlo2graph.backends.cuda.forms import OWN_FORMS, own_root
from hlo2graph.backends.cuda.kernels import walk
from hlo2graph.errors import Note, Span, UnsupportedError
from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops import OPS
from hlo2graph.ops.device import NoDevice, OwnKernel, device_of
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Collective, Kernel, Library

EMITTED = frozenset({"parameter", "constant", "tuple", "get-tuple-element"})


def check_support(plan: Plan) -> None:
    """Raise one UnsupportedError for all that cannot run: each kind, how often, where, why."""
    found: dict[tuple[str, str], list[Span | None]] = {}
    known: dict[str, list[tuple[Instruction, str]]] = {}
    for thunk in walk(plan.body):
        if not isinstance(thunk, Kernel | Library | Collective):
            continue
        name = thunk.computation
        if name not in known:
            known[name] = list(_refused(plan.computations, name))
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
    computations: Mapping[str, Computation], name: str
) -> Iterator[tuple[Instruction, str]]:
    """Yield the instructions of a computation, and of those it calls, that have no device code."""
    computation = computations[name]
    own = own_root(computation)
    for instr in computation.instructions:
        if instr.opcode in EMITTED:
            continue
        spec = OPS[instr.opcode]
        if reason := spec.why_not(instr):
            yield instr, reason
            continue
        match device_of(spec.device, instr):
            case NoDevice(reason):
                yield instr, reason
            case OwnKernel(form) if form not in OWN_FORMS:
                yield instr, f"it needs a kernel of its own, for {form}, which is not there yet"
            case OwnKernel() if instr is not own:
                yield instr, "it needs a kernel of its own, so a fusion cannot hold it"
            case _:
                pass
        for called in instr.called():
            yield from _refused(computations, called)


def _kind(instr: Instruction) -> str:
    target = instr.attrs.get("custom_call_target")
    return f'{instr.opcode} "{target}"' if isinstance(target, str) else instr.opcode


def _times(count: int) -> str:
    return f", {count} times" if count > 1 else ""
