"""The host backend: a plan that runs with NumPy over the byte arena; the definition of correct."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from threading import Lock

from hlo2graph.backends.arguments import check_arguments
from hlo2graph.backends.elided import fill_elided
from hlo2graph.backends.held import Memory
from hlo2graph.backends.host.arena import Arena
from hlo2graph.backends.host.block import Block, Walk, in_program_order, shuffled
from hlo2graph.backends.host.pool import Pool
from hlo2graph.backends.host.stamps import Stamp, Stamps
from hlo2graph.backends.host.steps import evaluated, load
from hlo2graph.backends.support import check_computations
from hlo2graph.ops.evaluate import HostEvaluator, unsupported
from hlo2graph.ops.spec import Array
from hlo2graph.program.one_device import caveats_of
from hlo2graph.program.plan import AllocationKind, ArrayType, Plan
from hlo2graph.program.thunks import Slice


class HostExecutable:
    """A plan ready to run; it owns every buffer.

    Calling it runs the thunks in program order; the other runs take other orders that the edges
    allow and give the same bits. Arguments are copied in and never written, results are copies.
    Calls from several threads take turns.
    """

    def __init__(self, plan: Plan, *, elided: str | None = None) -> None:
        """Load `plan`.

        `elided` gives values to constants that the text left out: "zeros" or "random:SEED".
        Raises UnsupportedError for operations that the host cannot run, all at once, and for
        elided constants where `elided` is None.
        """
        self.plan = plan = fill_elided(plan, elided)
        check_support(plan)
        self._arena = Arena(plan.allocations)
        for index, allocation in enumerate(plan.allocations):
            if (literal := allocation.literal) is not None and literal.array is not None:
                whole = Slice(index, 0, literal.shape.size)
                self._arena.view(whole, literal.shape)[...] = literal.array
        self._compute = evaluated(self._arena, HostEvaluator(plan.computations))
        self._block = load(plan.body, self._arena, self._compute)
        self._inputs = [self._arena.view(b.slice, b.shape) for b in plan.inputs]
        self._outputs = [self._arena.view(b.slice, b.shape) for b in plan.outputs]
        self._pools: dict[int, Pool] = {}
        self._turn = Lock()

    def __repr__(self) -> str:
        return f"<HostExecutable of {self.plan!r}>"

    @property
    def inputs(self) -> tuple[ArrayType, ...]:
        """Name, dtype and shape of each parameter leaf."""
        return tuple(bound.array_type for bound in self.plan.inputs)

    @property
    def outputs(self) -> tuple[ArrayType, ...]:
        """Name, dtype and shape of each result leaf."""
        return tuple(bound.array_type for bound in self.plan.outputs)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What running as one replica makes of communication between devices."""
        return caveats_of(self.plan)

    @property
    def memory(self) -> Memory:
        """What it holds, and what for."""
        held = dict.fromkeys(AllocationKind, 0)
        for allocation in self.plan.allocations:
            held[allocation.kind] += allocation.size
        return Memory(
            instances=1,
            parameters=held[AllocationKind.PARAMETER],
            constants=held[AllocationKind.CONSTANT],
            results=held[AllocationKind.LIVE_OUT],
            temporaries=held[AllocationKind.TEMP],
            graphs=0,
            driver=0,
        )

    def put(self, *args: object) -> tuple[Array, ...]:
        """Return the arguments as the arrays that a call takes, checked: none needs copying."""
        return tuple(check_arguments(args, self.plan.inputs))

    def __call__(self, *args: object) -> tuple[Array, ...]:
        """Run in program order on the calling thread; `args` are the parameter leaves."""
        return self._run(in_program_order, args)

    def run_fitting(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Run as a call does, on arrays that are known to fit."""
        return self._run_fitting(in_program_order, arrays)

    def run_in_order(self, order: Sequence[int], args: Sequence[object]) -> tuple[Array, ...]:
        """Run the top-level thunks in `order`, which the edges must allow; nested as written."""
        assert self._block.admits(order), "the edges do not allow this order"
        return self._run(partial(_in_order, order), args)

    def run_random(self, rng: Random, args: Sequence[object]) -> tuple[Array, ...]:
        """Run in a random order that the edges allow, drawn anew for each nested execution."""
        return self._run(shuffled(rng), args)

    def run_parallel(self, args: Sequence[object], threads: int) -> tuple[Array, ...]:
        """Run on `threads` threads, each thunk as soon as all that it waits for is done."""
        return self._run(self._pool(threads).run, args)

    def write_inputs(self, args: Sequence[object], *, only: Sequence[int] | None = None) -> None:
        """Copy arguments into their buffers: all, or those at the positions in `only`."""
        arrays = check_arguments(args, self.plan.inputs)
        for position in range(len(arrays)) if only is None else only:
            self._inputs[position][...] = arrays[position]

    def execute(self, threads: int | None) -> None:
        """Run over what the buffers hold: in program order, or on a pool of `threads`.

        This is what timing measures: nothing is poisoned or copied. See write_inputs, read_outputs.
        """
        walk = in_program_order if threads is None else self._pool(threads).run
        with self._turn:
            walk(self._block)

    def execute_stamped(self, threads: int) -> tuple[Stamp, ...]:
        """Run as `execute` does on a pool; return when each thunk ran, in order of its end."""
        stamps = Stamps()
        block = load(self.plan.body, self._arena, self._compute, stamps.watched)
        with self._turn:
            self._pool(threads).run(block)
        return tuple(stamps.taken)

    def read_outputs(self) -> tuple[Array, ...]:
        """Return copies of what the result buffers hold."""
        return tuple(view.copy(order="C") for view in self._outputs)

    def _run(self, walk: Walk, args: Sequence[object]) -> tuple[Array, ...]:
        return self._run_fitting(walk, check_arguments(args, self.plan.inputs))

    def _run_fitting(self, walk: Walk, arrays: Sequence[Array]) -> tuple[Array, ...]:
        with self._turn:
            for view, array in zip(self._inputs, arrays, strict=True):
                view[...] = array
            self._arena.poison()
            walk(self._block)
            return self.read_outputs()

    def _pool(self, threads: int) -> Pool:
        if threads not in self._pools:
            self._pools[threads] = Pool(threads)
        return self._pools[threads]


def check_support(plan: Plan) -> None:
    """Raise one UnsupportedError for all that cannot run: each kind, how often, where, why."""
    check_computations(plan, "the host", partial(unsupported, plan.computations))


def _in_order(order: Sequence[int], block: Block) -> None:
    for index in order:
        block.steps[index](in_program_order)
