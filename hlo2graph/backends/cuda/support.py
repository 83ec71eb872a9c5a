"""What CUDA cannot run, found for the whole plan before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager

from hlo2graph.backends.elided import fill_elided
from hlo2graph.backends.support import check_computations
from hlo2graph.errors import BackendError, UnsupportedError
from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops import OPS
from hlo2graph.ops.device import EMITTED, NoDevice, OwnKernel, device_of
from hlo2graph.ops.evaluate import unsupported
from hlo2graph.ops.region import SideBySide, own_root, region_of
from hlo2graph.ops.sort_runs import too_wide
from hlo2graph.ops.spec import Lowering
from hlo2graph.program.plan import Plan
from hlo2graph.program.uses import computing

WORD = 8  # bytes that elements lie on multiples of, shorter ones on those of their own


def check_support(plan: Plan) -> None:
    """Raise one UnsupportedError for all that cannot run: each kind, how often, where, why."""

    def refusals(name: str) -> Iterator[tuple[Instruction, str]]:
        computation = plan.computations[name]
        refused = unsupported(plan.computations, name)
        yield from refused
        named = {id(instr) for instr, _ in refused}
        region = region_of(computation)
        parts = region.parts if isinstance(region, SideBySide) else ()
        own = own_root(computation)
        for instr, reason in _refused(plan.computations, computation, own, parts):
            if id(instr) not in named:
                yield instr, reason

    check_computations(plan, "cuda", refusals)
    _check_places(plan)


@contextmanager
def input_first(
    make: Callable[[], Plan],
    elided: str | None = None,
    look: Callable[[Plan], object] = lambda _: None,
) -> Iterator[None]:
    """Where the body finds that a GPU is missing, say before that what is wrong with the input.

    So a mistake is the same mistake on every machine. `make` plans the input for any GPU, and
    `look` raises for what else is wrong.
    """
    try:
        yield
    except BackendError:
        made = fill_elided(make(), elided)
        check_support(made)
        look(made)
        raise


def _check_places(plan: Plan) -> None:
    """Raise UnsupportedError for a kernel's array that does not lie on whole elements."""
    for thunk in computing(plan.body):
        parts = (*thunk.reads, *thunk.writes)
        if not any(part.offset % WORD for part in parts):
            continue
        computation = plan.computations[thunk.computation]
        shapes = [leaf for p in computation.parameters for leaf in p.shape.leaves()]
        for shape, part in zip((*shapes, *computation.result.shape.leaves()), parts, strict=True):
            if part.offset % (size := min(shape.dtype.size, WORD)):
                raise UnsupportedError(
                    f"{thunk.name} has a {shape} at byte {part.offset} of allocation "
                    f"{part.allocation}, and cuda reads {shape.dtype} at multiples of {size} bytes",
                    thunk.span,
                )


def _refused(
    computations: Mapping[str, Computation],
    computation: Computation,
    own: Instruction | None,
    parts: Container[str] = (),
) -> Iterator[tuple[Instruction, str]]:
    """Yield the instructions of a computation, and of those it calls, that have no device code.

    `own` is the one that has the kernel to itself; `parts` are fusions that have one each.
    """
    for instr in computation.instructions:
        if instr.opcode not in EMITTED and (reason := device_reason(instr, own)):
            yield instr, reason
            continue
        if OPS[instr.opcode].lowering is Lowering.COLLECTIVE:
            continue  # what it would reduce with is not called on one device
        for called in instr.called():
            inner = computations[called]
            part = instr.name in parts
            yield from _refused(computations, inner, own_root(inner) if part else None)


def device_reason(instr: Instruction, own: Instruction | None) -> str | None:
    """Return why `instr` cannot be part of a kernel that belongs to `own`; None where it can."""
    match device_of(OPS[instr.opcode].device, instr):
        case NoDevice(reason):
            return reason
        case OwnKernel(form) if instr is not own:
            return f"needs a kernel of its own, for {form}, and is in the middle of another"
        case OwnKernel("sort") if too_wide(instr.shape):
            return "sorts more operands than fit into shared memory"
        case _:
            return None
