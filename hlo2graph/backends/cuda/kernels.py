"""Which kernel runs each thunk of a plan, as CUDA C++: one text a distinct computation."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from hlo2graph.backends.cuda.depth import deep_walks
from hlo2graph.backends.cuda.forms import SHARED_FORMS, Form, own_kernel
from hlo2graph.backends.cuda.forms.attention.attention import attention_kernel
from hlo2graph.backends.cuda.forms.folds.columns import columns_kernel
from hlo2graph.backends.cuda.forms.folds.rows import rows_kernel
from hlo2graph.backends.cuda.forms.side_by_side import side_by_side_kernel
from hlo2graph.backends.cuda.forms.sweeps import sweeps_kernel
from hlo2graph.backends.cuda.loop import loop_kernel
from hlo2graph.backends.cuda.source import (
    ACCESS_BYTES,
    MOST_BLOCKS,
    KernelSource,
    Signature,
    cpp_name,
    signature_of,
)
from hlo2graph.backends.cuda.team import WARP
from hlo2graph.backends.cuda.widen import THREADS
from hlo2graph.errors import UnsupportedError
from hlo2graph.hlo import Computation, Instruction
from hlo2graph.ops.region import (
    Attention,
    Columns,
    Loop,
    Own,
    Rows,
    SideBySide,
    own_root,
    region_of,
)
from hlo2graph.ops.sweeps import Sweeps
from hlo2graph.program.device_figures import DeviceFigures, figures_for
from hlo2graph.program.plan import Plan
from hlo2graph.program.thunks import Computing, Library, Slice
from hlo2graph.program.uses import computing, walk, writes


@dataclass(frozen=True, slots=True)
class KernelKey:
    """What a kernel's text depends on: the computation, and where its arrays lie.

    `inplace` holds the pairs (parameter, result) that share their bytes; `misaligned` the arrays
    (p0, r1) that do not lie on whole ACCESS_BYTES, as slices of hand-written plans may.
    """

    computation: str
    inplace: tuple[tuple[int, int], ...]
    misaligned: frozenset[str] = frozenset()


NONE: Mapping[KernelKey, KernelSource] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Texts:
    """Kernels that were written before, and what to do with all when some were not."""

    known: Mapping[KernelKey, KernelSource] = field(default_factory=lambda: NONE)
    keep: Callable[[Mapping[KernelKey, KernelSource]], None] | None = None

    def keep_new(self, kernels: Mapping[KernelKey, KernelSource]) -> None:
        """Keep all kernels of a plan, if some were not known."""
        if self.keep is not None and not kernels.keys() <= self.known.keys():
            self.keep(kernels)


def key_of(thunk: Computing[Slice]) -> KernelKey:
    """Return the key of the kernel that runs `thunk`."""
    pairs = tuple(
        (p, r)
        for p, read in enumerate(thunk.reads)
        for r, written in enumerate(thunk.writes)
        if read == written and read.size
    )
    named = [(f"p{p}", read) for p, read in enumerate(thunk.reads)]
    named += [(f"r{r}", written) for r, written in enumerate(thunk.writes)]
    misaligned = frozenset(name for name, part in named if part.offset % ACCESS_BYTES)
    return KernelKey(thunk.computation, pairs, misaligned)


def kernels_of(
    plan: Plan,
    without: Container[str] = (),
    *,
    precise: bool = False,
    known: Mapping[KernelKey, KernelSource] = NONE,
) -> dict[KernelKey, KernelSource]:
    """Return the kernels that `write_kernels` yields, in order of first use."""
    thunks = _thunks_by_key(plan, without)
    found = dict(_written_for(thunks, plan, precise=precise, known=known))
    return {key: found[key] for key in thunks}


def write_kernels(
    plan: Plan,
    without: Container[str] = (),
    *,
    precise: bool = False,
    known: Mapping[KernelKey, KernelSource] = NONE,
) -> Iterator[tuple[KernelKey, KernelSource]]:
    """Return the kernels of every thunk of `plan`, nested ones too: those first that are long.

    Keys whose kernels have the same text, as those may that share bytes or not, have one.
    `without` names the computations that a library runs; `precise` forbids what rounds more than
    the types do: TF32, sums on tensor cores. `known` are kernels that were written before.

    Raises:
        UnsupportedError: an array has more elements than the threads of one kernel.
    """
    return _written_for(_thunks_by_key(plan, without), plan, precise=precise, known=known)


def _written_for(
    thunks: Mapping[KernelKey, Sequence[Computing[Slice]]],
    plan: Plan,
    *,
    precise: bool,
    known: Mapping[KernelKey, KernelSource],
) -> Iterator[tuple[KernelKey, KernelSource]]:
    alike: dict[KernelSource, KernelSource] = {}
    taken = {source.name for source in known.values()}
    device = figures_for(plan.target)
    written = {part.allocation for thunk in walk(plan.body) for part in writes(thunk)}
    names = {key: cpp_name(t[0].name, taken) for key, t in thunks.items() if key not in known}
    for key in sorted(thunks, key=partial(_is_short, plan.computations)):
        if key in known:
            yield key, known[key]
            continue
        signature = signature_of(
            names[key],
            plan.computations[key.computation],
            device,
            key.misaligned,
            precise=precise,
            still=_still(thunks[key], written),
        )
        source = kernel_source(key, signature, plan.computations)
        _check_grid(source, thunks[key][0], plan.computations[key.computation].result)
        yield key, alike.setdefault(source.nameless, source)


def _check_grid(source: KernelSource, thunk: Computing[Slice], root: Instruction) -> None:
    if source.grid[0] > MOST_BLOCKS:
        raise UnsupportedError(
            f"{thunk.name}, {root.opcode} of {root.shape.without_layout_text()}, takes "
            f"{source.grid[0]:,} blocks of threads, and a kernel has at most {MOST_BLOCKS:,}",
            thunk.span or root.span,
        )


def _thunks_by_key(plan: Plan, without: Container[str]) -> dict[KernelKey, list[Computing[Slice]]]:
    """Return the thunks of each kernel, in order, but for those that a library runs."""
    found: dict[KernelKey, list[Computing[Slice]]] = {}
    for thunk in computing(plan.body):
        if not (isinstance(thunk, Library) and thunk.computation in without):
            found.setdefault(key_of(thunk), []).append(thunk)
    return found


def _is_short(computations: Mapping[str, Computation], key: KernelKey) -> tuple[bool, int]:
    """Return what is the less, the longer the compiler is likely to take over a kernel."""
    instructions = list(computations[key.computation].instructions)
    for instr in instructions[:]:
        for name in instr.called():
            instructions += computations[name].instructions
    return not any(i.opcode == "convolution" for i in instructions), -len(instructions)


def _still(thunks: Sequence[Computing[Slice]], written: Container[int]) -> frozenset[str]:
    """Return which arrays lie, for all of a kernel's thunks, in allocations that none writes.

    Such may be read while kernels in front are still running.
    """
    names = (
        {f"p{k}" for k, part in enumerate(thunk.reads) if part.allocation not in written}
        for thunk in thunks
    )
    return frozenset(set.intersection(*names))


def kernel_source(
    key: KernelKey, signature: Signature, computations: Mapping[str, Computation]
) -> KernelSource:
    """Return the kernel for one computation, in the form that fits its root."""
    computation = computations[key.computation]

    def write(
        signature: Signature, computation: Computation, inplace: tuple[tuple[int, int], ...]
    ) -> KernelSource:
        if any(leaf.elements for leaf in signature.results):
            return _written(signature, computation, computations, inplace)
        text = signature.declare((), WARP)  # nothing to do, yet a grid has a block
        return KernelSource(signature.name, text, (1, 1, 1), WARP, is_light=True)

    with deep_walks(computation, computations):
        region = region_of(computation)
        if isinstance(region, SideBySide):
            found = side_by_side_kernel(
                region, computation, computations, signature, key.inplace, write
            )
        else:
            found = write(signature, computation, key.inplace)
    return replace(found, is_long=is_long(computation, computations))


def _written(
    signature: Signature,
    computation: Computation,
    computations: Mapping[str, Computation],
    inplace: tuple[tuple[int, int], ...],
) -> KernelSource:
    """Return the kernel for a computation that is no set of parts, and has results."""
    form = partial(Form, computation, computations, signature, inplace=inplace)
    if (own := own_root(computation)) is not None:
        return own_kernel(form(own))
    found: KernelSource | None = None
    match region_of(computation):
        case Rows() as region:
            found = rows_kernel(region, computation, computations, signature)
        case Columns() as region:
            found = columns_kernel(region, computation, computations, signature)
        case Attention() as region:
            found = attention_kernel(form(computation[region.weighing.product]), region)
        case Sweeps() as region:
            found = sweeps_kernel(region, computations, signature)
        case Own() as region:
            hero, *others = (computation[name] for name in (region.hero, *region.others))
            made = form(hero, others=tuple(others), updates=region.updates)
            write = _shared_form(made)
            found = write(made) if write is not None else None
        case _:
            pass
    if found is not None:
        return found
    source = loop_kernel(computation, computations, signature, inplace)
    return replace(source, is_light=is_light(computation, signature.device))


def _shared_form(form: Form) -> Callable[[Form], KernelSource] | None:
    """Return what writes the kernel of a hero that the loop form can do too, if a form fits."""
    fitting = (w for opcode, fits, w in SHARED_FORMS if form.instr.opcode == opcode and fits(form))
    return next(fitting, None)


def is_long(computation: Computation, computations: Mapping[str, Computation]) -> bool:
    """Tell whether a kernel, or a part of it, takes many steps: a sort, a factor and their kin."""
    parts = (computations[name] for i in computation.instructions for name in _fused(i))
    return any(own_root(part) is not None for part in (computation, *parts))


def _fused(instr: Instruction) -> tuple[str, ...]:
    return tuple(instr.called()) if instr.opcode == "fusion" else ()


def is_light(computation: Computation, device: DeviceFigures) -> bool:
    """Tell whether a kernel is as short as one can be: elementwise, on part of the device."""
    if not isinstance(region_of(computation), Loop):
        return False
    elements = max((leaf.elements for leaf in computation.result.shape.leaves()), default=0)
    return elements < device.multiprocessors * THREADS
